"""Recordings simulated anew, each beside what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from memdoctor.errors import MemdoctorError
from memdoctor.probes.pool import Request
from memdoctor.probes.record.comparison import CellComparison, compare, outcome_of
from memdoctor.probes.record.files import SUFFIX
from memdoctor.probes.record.grid import facts_of
from memdoctor.records import Examination
from memdoctor.storage import load_examination

Simulate = Callable[[Sequence[Request]], Sequence[Examination | MemdoctorError]]
"""Simulates each of the requests, or says why it cannot be; in their order."""


def compare_all(files: Sequence[Path], simulate: Simulate) -> list[CellComparison]:
    """Each recording and its fresh simulation: the same workload, the recorded card, as many steps.

    Raises:
        InputError: a file cannot be read, or is no recording.
    """
    recorded = [load_examination(file) for file in files]
    simulated = simulate([request_of(examination) for examination in recorded])
    return [
        _beside(file.name.removesuffix(SUFFIX), theirs, ours)
        for file, theirs, ours in zip(files, recorded, simulated, strict=True)
    ]


def request_of(recorded: Examination) -> Request:
    """What to simulate for a recording."""
    steps = max(1, *(phase.step for phase in recorded.timeline.phases))
    return Request(recorded.workload, recorded.device, facts_of(recorded.workload.model), steps)


def _beside(name: str, recorded: Examination, simulated: Examination | MemdoctorError) -> CellComparison:
    if isinstance(simulated, Examination):
        return compare(name, recorded, simulated)
    reason = f"not simulated: {simulated.what}"
    return CellComparison(name, recorded.workload, recorded.device, outcome_of(recorded), reason, (), ())
