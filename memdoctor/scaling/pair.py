"""Two examinations of different batch sizes: every tensor in them is a line in the batch size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memdoctor.analysis import phases_of
from memdoctor.records import Examination, PhaseLine, PhaseUse


@dataclass(frozen=True, slots=True)
class Pair:
    """The two, the smaller batch first, and the lines through them."""

    small: Examination
    next: Examination

    def line(self, small_bytes: int, next_bytes: int) -> tuple[int, int]:
        """Fixed bytes and bytes per sample."""
        each = (next_bytes - small_bytes) // (self.next.workload.batch_size - self.small.workload.batch_size)
        return small_bytes - self.small.workload.batch_size * each, each

    def phase_lines(self) -> tuple[PhaseLine, ...]:
        """The line of each phase's peak: of each micro-step's, where both examinations hold as many of them."""

        def line(first: PhaseUse, second: PhaseUse) -> PhaseLine:
            fixed, each = self.line(first.peak_allocated_bytes, second.peak_allocated_bytes)
            return PhaseLine(step=first.step, name=first.name, fixed_bytes=fixed, per_sample_bytes=each)

        small, next_ = phases_of(self.small), phases_of(self.next)
        if len(small) != len(next_):
            small, next_ = _highest(small), _highest(next_)
        return tuple(line(*uses) for uses in zip(small, next_, strict=True))


def _highest(uses: Iterable[PhaseUse]) -> tuple[PhaseUse, ...]:
    """Of the phases of one name and step, that with the highest peak."""
    highest: dict[tuple[int, str], PhaseUse] = {}
    for use in uses:
        key = (use.step, use.name)
        if key not in highest or use.peak_allocated_bytes > highest[key].peak_allocated_bytes:
            highest[key] = use
    return tuple(highest.values())
