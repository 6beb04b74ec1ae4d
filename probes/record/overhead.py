"""What recording costs: the same step in two fresh processes, one that records and one that does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from memdoctor.codec import from_json, to_json
from memdoctor.errors import MeasureError, TooSlow
from memdoctor.probes import STEPS
from memdoctor.probes.pool import ENVIRONMENTS
from memdoctor.probes.record.grid import Cell, facts_of
from memdoctor.probes.worker import configure_allocator
from memdoctor.records import Backend, Device, Workload
from memdoctor.units import KIB

if TYPE_CHECKING:  # the parent imports no torch
    from memdoctor.probes.cuda_allocator import CudaAllocator

CELLS = 3  # of the grid, from its first on
MORE_TIME = "a larger --cell-time-limit, and --time-limit where that is less"


class How(StrEnum):
    """Whether the step is recorded."""

    RECORDED = "recorded"
    BARE = "bare"


@dataclass(frozen=True, slots=True)
class Cost:
    """Peaks of one process that ran a step: PyTorch's two counters, and the process on the host; bytes."""

    allocated_bytes: int
    reserved_bytes: int
    host_bytes: int


@dataclass(frozen=True, slots=True)
class Overhead:
    """What a cell's step takes with the recording and without."""

    cell: str
    recorded: Cost
    bare: Cost

    @property
    def allocated_bytes(self) -> int:
        """More allocated on the device: 0 is right."""
        return self.recorded.allocated_bytes - self.bare.allocated_bytes

    @property
    def reserved_bytes(self) -> int:
        """More reserved on the device: 0 is right."""
        return self.recorded.reserved_bytes - self.bare.reserved_bytes

    @property
    def host_bytes(self) -> int:
        """More host memory."""
        return self.recorded.host_bytes - self.bare.host_bytes

    @property
    def host_percent(self) -> float:
        """The same, in percent of the process without the recording."""
        return 100 * self.host_bytes / self.bare.host_bytes


RunOnce = Callable[[Workload, How], Cost]
"""Runs the steps in a process of their own. Raises a MeasureError where it cannot."""


def overhead_of(cell: Cell, run_once: RunOnce) -> Overhead:
    """The step of a cell, run both ways.

    Raises:
        MeasureError: one of the two did not run.
    """
    return Overhead(cell.name, run_once(cell.workload, How.RECORDED), run_once(cell.workload, How.BARE))


def run_once(workload: Workload, how: How, *, device: Device, time_limit: float) -> Cost:
    """Run the steps in a process of their own, on the GPU, with the settings that a recording has.

    Raises:
        MeasureError: it failed, or took longer than the limit.
    """
    question = {
        "workload": to_json(workload),
        "device": to_json(device),
        "config": dict(facts_of(workload.model).config),
    }
    environment = {**os.environ, **ENVIRONMENTS[Backend.GPU]}
    configure_allocator(environment, device.alloc_conf)
    try:
        ran = subprocess.run(
            [sys.executable, "-P", "-m", __name__, how.value], input=json.dumps(question), capture_output=True,
            text=True, timeout=time_limit, check=False, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise TooSlow(f"the {how} step took longer than {time_limit:g} s", hint=MORE_TIME) from error
    lines = ran.stdout.strip().splitlines()
    if ran.returncode or not lines:
        last = ran.stderr.strip().splitlines()[-1:]
        raise MeasureError(f"the {how} step failed", why=last[0] if last else f"exit code {ran.returncode}")
    return from_json(Cost, json.loads(lines[-1]))


def bare_peak(allocator: CudaAllocator, workload: Workload, config: Mapping[str, Any]) -> tuple[int, int]:
    """Peaks of allocated and reserved bytes of the steps with nobody watching, and no history written."""
    from memdoctor.probes.bare import run_bare
    from memdoctor.probes.real import real_subject

    subject = real_subject(config, workload)
    allocator.reset()
    run_bare(allocator, subject, workload, STEPS)
    totals = allocator.totals()
    return totals.peak_allocated_bytes, totals.peak_reserved_bytes


def _child(how: How, question: Mapping[str, Any]) -> Cost:
    import resource  # not on Windows, where tables are made all the same

    from memdoctor.probes.cuda_allocator import CudaAllocator
    from memdoctor.probes.gpu import measure

    workload, device = from_json(Workload, question["workload"]), from_json(Device, question["device"])
    if how is How.BARE:
        allocated, reserved = bare_peak(CudaAllocator(), workload, question["config"])
    else:
        found = measure(workload, device, question["config"], "", STEPS)
        counted = found.counters
        assert counted is not None  # they are there where a GPU was measured
        allocated, reserved = counted.max_memory_allocated_bytes, counted.max_memory_reserved_bytes
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB  # Linux counts KiB
    return Cost(allocated, reserved, host)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(to_json(_child(How(sys.argv[1]), json.load(sys.stdin)))) + "\n")
