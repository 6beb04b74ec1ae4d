"""Whether a case is to be measured: on this machine's own card, as it is, and only there; and how much of a step."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from memdoctor.cases import Case, open_case
from memdoctor.errors import InputError, UsageError
from memdoctor.records import Backend

Pretend = Callable[..., ModuleType]


@pytest.fixture
def on_a_t4(pretend_gpus: Pretend, nvml: Any) -> None:
    pretend_gpus(nvml.card())


def case(**asked: Any) -> Case:
    return open_case("bert-base-uncased", offline=True, **asked)


@pytest.mark.usefixtures("on_a_t4")
@pytest.mark.parametrize(
    ("asked", "tries"),
    [
        ({}, True),
        ({"gpu": "T4"}, True),
        ({"gpu": "tesla-t4"}, True),
        ({"gpu": "A100-40GB"}, False),
        ({"memory": "8 GiB"}, False),
        ({"gpu": "T4", "memory": "8 GiB"}, False),
        ({"backend": "simulated"}, False),
        ({"backend": "gpu"}, True),
        ({"backend": "gpu", "gpu": "T4"}, True),
    ],
)
def test_the_own_card_as_it_is_is_measured(asked: dict[str, Any], tries: bool) -> None:
    found = case(**asked)
    assert found.tries_gpu is tries
    assert found.backend is (Backend.GPU if asked.get("backend") == "gpu" else Backend.SIMULATED)


@pytest.mark.usefixtures("on_a_t4")
@pytest.mark.parametrize("asked", [{"gpu": "A100-40GB"}, {"memory": "8 GiB"}, {"gpu": "T4", "memory": "8 GiB"}])
def test_a_card_that_is_not_there_cannot_be_measured(asked: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--backend gpu contradict each other") as caught:
        case(backend="gpu", **asked)
    assert "--backend simulated" in caught.value.hint


def test_without_nvml_only_who_insists_gets_a_gpu(pretend_gpus: Pretend) -> None:
    """NVML may be missing where CUDA works; whether it does, the worker finds out."""
    pretend_gpus()
    assert not case().tries_gpu
    assert case(backend="gpu").tries_gpu


def test_a_step_of_more_micro_batches_than_a_probe_makes_is_refused() -> None:
    most = case(gpu="T4", backend="simulated", gradient_accumulation_steps=10_000)
    assert most.workload.gradient_accumulation_steps == 10_000
    with pytest.raises(InputError, match="a step of 10,001 micro-batches takes too long to probe"):
        case(gpu="T4", backend="simulated", gradient_accumulation_steps=10_001)
