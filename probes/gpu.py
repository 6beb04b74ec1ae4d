"""The GPU probe: the real training step on CUDA, its memory from the allocator's own history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memdoctor.errors import MeasureError
from memdoctor.probes import STEPS
from memdoctor.records import Device, Examination, Workload


def measure(
    workload: Workload, device: Device, config: Mapping[str, Any], model_source: str, steps: int = STEPS
) -> Examination:
    """Run ``steps`` optimizer steps of ``workload`` on the GPU."""
    raise MeasureError("there is no GPU probe yet")
