"""A recording beside its simulation: one row a figure, and what is told of many of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from memdoctor.agreement import counters_of
from memdoctor.analysis import breakdown_of, peak_of, phase_of, phases_of
from memdoctor.catalogue import find_gpu
from memdoctor.records import Category, Completed, Device, Examination, RanOut, Workload


class Kind(StrEnum):
    """What a figure is one of."""

    ALLOCATED = "allocated"  # torch.cuda.max_memory_allocated
    RESERVED = "reserved"  # torch.cuda.max_memory_reserved
    DEVICE = "device"  # what nvidia-smi shows: reserved, context and other processes
    CATEGORY = "category"  # of the bytes in use at the peak
    PHASE = "phase"  # the most in use in one
    RAN_OUT = "ran out"  # of PyTorch's message


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a recording and of its simulation, in bytes; ``None`` is unknown."""

    kind: Kind
    what: str
    recorded: int | None
    simulated: int | None

    @property
    def difference(self) -> int | None:
        """Bytes that the simulation says too much; negative where it says too little."""
        return None if self.recorded is None or self.simulated is None else self.simulated - self.recorded

    @property
    def error(self) -> float | None:
        """The difference in percent of what was recorded; ``None`` where that is unknown, or 0 and there is one."""
        if self.difference is None or not self.recorded:
            return 0.0 if self.difference == 0 else None
        return 100 * self.difference / self.recorded


@dataclass(frozen=True, slots=True)
class CellComparison:
    """A recording, by the name of its file, and its simulation. ``notes``: why the two may rightly differ."""

    name: str
    workload: Workload
    device: Device
    recorded: str
    simulated: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def same_outcome(self) -> bool:
        """Whether both completed, or both ran out of memory."""
        return self.recorded == self.simulated

    def row(self, kind: Kind) -> Row | None:
        """The first figure of this kind."""
        return next((row for row in self.rows if row.kind is kind), None)


@dataclass(frozen=True, slots=True)
class Summary:
    """How far the simulation is off in one figure, over many cells: errors without their sign, ``None`` is unknown."""

    figure: str
    cells: int
    unknown: int
    exact: int
    too_little: int
    median_percent: float | None
    largest_percent: float | None
    largest_bytes: int | None


def compare(name: str, recorded: Examination, simulated: Examination) -> CellComparison:
    """Every figure of the two. Both run on the recorded device, so only what PyTorch does is told apart.

    A run that ran out of memory has no peak that could be compared: its simulation goes on as on a larger card. Its
    figures are those of PyTorch's message.
    """
    completed = isinstance(recorded.outcome, Completed) and isinstance(simulated.outcome, Completed)
    rows = _peak_rows(recorded, simulated) if completed else _message_rows(recorded, simulated)
    return CellComparison(
        name, recorded.workload, recorded.device, outcome_of(recorded), outcome_of(simulated), tuple(rows),
        tuple(_notes(recorded, simulated)),
    )  # fmt: skip


def outcome_of(examination: Examination) -> str:
    """How it ended, in a word or, where memory ran out, with the phase in which it did."""
    if isinstance(examination.outcome, Completed):
        return "completed"
    phase = phase_of(examination.timeline, examination.outcome.event)
    return f"ran out in {phase.name.value} of step {phase.step}"


def _peak_rows(recorded: Examination, simulated: Examination) -> Iterator[Row]:
    theirs, ours = peak_of(recorded), peak_of(simulated)
    allocated, reserved = theirs.max_memory_allocated_bytes, theirs.reserved_bytes
    if recorded.counters is not None:  # PyTorch's own word, not what its history adds up to
        allocated = recorded.counters.max_memory_allocated_bytes
        reserved = recorded.counters.max_memory_reserved_bytes
    yield Row(Kind.ALLOCATED, "allocated", allocated, ours.max_memory_allocated_bytes)
    yield Row(Kind.RESERVED, "reserved", reserved, ours.reserved_bytes)
    device = theirs.device_bytes if context_is_measured(recorded.device) else None
    outside = _outside_the_allocator(recorded.device)
    yield Row(Kind.DEVICE, "device", device, None if outside is None else ours.reserved_bytes + outside)
    held, expected = breakdown_of(recorded), breakdown_of(simulated)
    for category in Category:
        yield Row(
            Kind.CATEGORY, category.value, getattr(held, category.value), getattr(expected, category.value)
        )  # fmt: skip
    yield from _phase_rows(recorded, simulated)


def _phase_rows(recorded: Examination, simulated: Examination) -> Iterator[Row]:
    """Phases by their names; of those that only one of the two has, the other's figure is unknown."""
    theirs, ours = dict(_phase_peaks(recorded)), dict(_phase_peaks(simulated))
    for what in theirs | ours:
        yield Row(Kind.PHASE, what, theirs.get(what), ours.get(what))


def _phase_peaks(examination: Examination) -> Iterator[tuple[str, int]]:
    seen: Counter[str] = Counter()
    for use in phases_of(examination):
        name = f"step {use.step} {use.name}"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})", use.peak_allocated_bytes


def _message_rows(recorded: Examination, simulated: Examination) -> Iterator[Row]:
    """The figures of the message; unknown where one of the two completed."""
    for field, what in (
        ("segment_bytes", "tried to allocate"), ("free_bytes", "free"),
        ("allocated_bytes", "allocated when it ran out"), ("reserved_bytes", "reserved when it ran out"),
    ):  # fmt: skip
        figures = [
            getattr(outcome, field) if isinstance(outcome, RanOut) else None
            for outcome in (recorded.outcome, simulated.outcome)
        ]
        yield Row(Kind.RAN_OUT, what, *figures)


def context_is_measured(device: Device) -> bool:
    """Whether NVML was asked what the process holds; else the context is a figure of the catalogue."""
    return device.context_source.startswith("measured")


def _outside_the_allocator(device: Device) -> int | None:
    """What other processes held, and the context that would be told without the card at hand: the catalogue's.

    Of a card that is not in the catalogue, the measured one; unknown where that is too.
    """
    entry = find_gpu(device.name)
    if entry is None and not context_is_measured(device):
        return None
    return (entry.context_bytes if entry is not None else device.context_bytes) + device.other_processes_bytes


def _notes(recorded: Examination, simulated: Examination) -> Iterator[str]:
    theirs, ours = recorded.provenance, simulated.provenance
    if theirs.mode != "measured":
        yield f"no measurement: the file is {theirs.mode}"
    for name, then, now in (
        ("torch", theirs.torch, ours.torch), ("transformers", theirs.transformers, ours.transformers),
    ):  # fmt: skip
        if public(then) != public(now):
            yield f"recorded with {name} {public(then)}, simulated with {public(now)}: both may be right"
    if theirs.attention_kernels != ours.attention_kernels:
        yield f"attention ran as {', '.join(theirs.attention_kernels)}, simulated {', '.join(ours.attention_kernels)}"
    for check in counters_of(recorded):
        if check.difference_bytes:
            note = f": {check.note}" if check.note else ""
            yield f"{check.name}: {check.difference_bytes:+,} B that the recorded history does not explain{note}"
    if recorded.workload != simulated.workload:
        yield "the recorded workload is not the simulated one"
    if recorded.device.context_source.endswith("others included"):
        yield f"device bytes, {recorded.device.context_source}"
    if not context_is_measured(recorded.device):
        yield f"device bytes unknown: {recorded.device.context_source}"


def public(version: str) -> str:
    """A version without what it was built for: ``2.11.0+cu130`` is ``2.11.0``."""
    return version.partition("+")[0]


def summarize(comparisons: Iterable[CellComparison]) -> tuple[Summary, ...]:
    """What is told of all, one line a figure, in the order of the rows; the phases' peaks together."""
    figures: dict[str, list[Row]] = {}
    for row in (row for comparison in comparisons for row in comparison.rows):
        figures.setdefault("phases" if row.kind is Kind.PHASE else row.what, []).append(row)
    return tuple(_summary(figure, rows) for figure, rows in figures.items())


def _summary(figure: str, rows: list[Row]) -> Summary:
    differences = [row.difference for row in rows if row.difference is not None]
    percents = [abs(row.error) for row in rows if row.error is not None]
    return Summary(
        figure,
        cells=len(rows),
        unknown=len(rows) - len(differences),
        exact=differences.count(0),
        too_little=sum(difference < 0 for difference in differences),
        median_percent=median(percents) if percents else None,
        largest_percent=max(percents, default=None),
        largest_bytes=max(map(abs, differences), default=None),
    )


def worst_first(comparisons: Iterable[CellComparison]) -> list[CellComparison]:
    """Other outcomes first, then by the error in allocated and in reserved bytes, largest first."""

    def badness(comparison: CellComparison) -> tuple[bool, float, float]:
        errors = [
            abs(row.error) if row is not None and row.error is not None else 0.0
            for row in (comparison.row(Kind.ALLOCATED), comparison.row(Kind.RESERVED))
        ]
        return comparison.same_outcome, -errors[0], -errors[1]

    return sorted(comparisons, key=badness)
