"""The CPU probe: the real training step with real numbers on this machine's processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memdoctor.errors import MeasureError
from memdoctor.probes import STEPS
from memdoctor.records import Device, Examination, Workload


def run_on_cpu(
    workload: Workload, device: Device, config: Mapping[str, Any], model_source: str, steps: int = STEPS
) -> Examination:
    """Run ``steps`` optimizer steps of ``workload`` on the CPU."""
    raise MeasureError("there is no CPU probe yet")
