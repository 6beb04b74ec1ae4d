"""An environment without a fault, to be changed in one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.environment import Environment
from memdoctor.environment.gather import PACKAGES, VARIABLES
from memdoctor.probes.nvml import NoGpu, survey
from memdoctor.probes.torch_build import TorchBuild
from memdoctor.probes.visibility import as_cuda_numbers


@pytest.fixture
def environment(nvml: Any, pretend_gpus: Any) -> Callable[..., Environment]:
    """The environment of a machine with these cards (one T4 without any) and a torch for its CUDA, changed."""

    def build(*cards: dict[str, Any], properties: dict[str, Any] | None = None, **changes: Any) -> Environment:
        pretend_gpus(*(cards or (nvml.card(),)), **(properties or {}))
        seen = survey()
        variables = dict.fromkeys(VARIABLES) | changes.pop("variables", {})
        known = {name: text for name, text in variables.items() if text is not None}
        made = Environment(
            memdoctor="0.1.0", python="3.11.7", platform="Linux", cpu_cores=2, host_memory_bytes=24 << 30,
            packages=dict.fromkeys(PACKAGES, "1.0") | {"pynvml": None}, variables=variables,
            torch=TorchBuild("2.13.0+cu130", "13.0", None), gpus=seen,
            visible=None if isinstance(seen, NoGpu) or not seen.gpus else as_cuda_numbers(seen, known), contexts={},
            probe_cache=None, cards_on_bus=1,
        )  # fmt: skip
        return replace(made, **changes)

    return build
