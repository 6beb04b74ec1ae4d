"""What more than one rule reads off the evidence, and how it is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from memdoctor.analysis import peak_of
from memdoctor.records import Block, Change, Examination, Lever, PhaseName, TensorGroup, Timeline
from memdoctor.rules.accumulating import never_accumulates, stops
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Remedy, Threshold
from memdoctor.units import format_bytes

NEARLY_FULL = Threshold(
    "share of the card", 0.9, "of what PyTorch can reserve on the card",
    "ours: with a tenth left, one longer batch or another process ends the run",
)  # fmt: skip

_LOOKUP = "aten.embedding.default"


def shaped(shape: tuple[int, ...]) -> str:
    """``8x512x768``."""
    return "x".join(map(str, shape)) or "1"


def percent(part: int, whole: int) -> str:
    """``63 %``."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def counted(number: int, noun: str) -> str:
    """``1 tensor``, ``2 tensors``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def product(group: TensorGroup) -> str:
    """``12 x 8x512x3072 x 4 B = 576.00 MiB``; with the type's name where the bytes are no multiple of the elements."""
    elements = group.count * prod(group.shape)
    width = f" x {group.bytes // elements} B" if elements and group.bytes % elements == 0 else f" {group.dtype}"
    return f"{group.count} x {shaped(group.shape)}{width} = {format_bytes(group.bytes)}"


def presses(evidence: Evidence) -> bool:
    """Whether memory is short: the target does not fit, or takes more than :data:`NEARLY_FULL` of the card."""
    return not evidence.fits or evidence.peak.reserved_bytes > NEARLY_FULL.value * evidence.limit_bytes


def others_decide(evidence: Evidence) -> bool:
    """Whether the target does not fit and would, had it the card to itself.

    What was measured and cut short says nothing of it: what it would have taken is not known.
    """
    device = evidence.device
    cut_short = evidence.examination.provenance.mode == "measured"
    alone = device.total_bytes - device.context_bytes
    shared = not evidence.fits and not cut_short and device.other_processes_bytes > 0
    return shared and evidence.peak.reserved_bytes <= alone


def gain(lever: Lever | None) -> int | None:
    """Reserved bytes that having the lever saves, negative where it costs; ``None`` where it was not probed."""
    return None if lever is None else lever.saves_bytes


def effect(evidence: Evidence, lever: Lever | None) -> str:
    """What a probed lever does to the reserved peak, in words; empty where it was not probed."""
    saved = gain(lever)
    if lever is None or saved is None or lever.peak is None:
        return ""
    target, other = evidence.peak.reserved_bytes, lever.peak.reserved_bytes
    before, after = (other, target) if lever.status == "in use" else (target, other)
    if saved == 0:
        return f"{lever.name} leaves the reserved peak at {format_bytes(after)}"
    verb = "saves" if saved > 0 else "costs"
    return (
        f"{lever.name} {verb} {format_bytes(abs(saved))} of the reserved peak "
        f"({format_bytes(before)} without it, {format_bytes(after)} with it)"
    )


def left(evidence: Evidence, remedies: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """The remedies that this card allows and whose lever is still to be pulled here; where none is, all it allows.

    One that is in use, one that was probed to save nothing, and one that the model or the card does not have is not.
    """
    allowed = possible(evidence, remedies)
    return tuple(remedy for remedy in allowed if not _spent(evidence.lever(remedy.lever))) or allowed


def possible(evidence: Evidence, remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """The remedies that are for a card of this compute capability; all on the CPU, which has none.

    Those that accumulate are not, where batch 1 was probed not to fit several times over or the optimizer never does.
    """
    never = bool(never_accumulates(evidence.workload))
    here, stopped = capability(evidence), never or (not evidence.fits and stops(evidence, 1) is not None)
    able = [each for each in remedies if evidence.device.is_cpu or each.since <= here < each.before]
    return tuple(each for each in able if not (each.accumulates and stopped))


def capability(evidence: Evidence) -> float:
    """The card's compute capability as one number, as thresholds have it: 7.5."""
    major, minor = evidence.device.capability
    return major + minor / 10


def _spent(lever: Lever | None) -> bool:
    if lever is None:
        return False
    return lever.status != "probed" or (lever.saves_bytes is not None and lever.saves_bytes <= 0)


def at(examination: Examination) -> str:
    """The reserved peak of a probe, in words."""
    return f"{format_bytes(peak_of(examination).reserved_bytes)} reserved"


def varied(evidence: Evidence, field: str) -> dict[int, Examination]:
    """The target with only this count changed, by its value, smallest first; what was probed of it."""
    found = {_number(made, field): examination for made, examination in evidence.probes if list(made) == [field]}
    return dict(sorted(found.items()))


def _number(change: Change, field: str) -> int:
    value = change[field]
    assert isinstance(value, int), f"{field} is no count: {value}"
    return value


def most_alive(timeline: Timeline, wanted: Callable[[Block], bool]) -> tuple[Block, ...]:
    """The wanted blocks that are alive at the instant at which they hold most, in order of birth."""
    now = best = 0
    at_event = None
    for number, event in enumerate(timeline.events):
        if wanted(timeline.blocks[event.block]):
            now += event.delta_bytes
            if now > best:
                best, at_event = now, number
    if at_event is None:
        return ()
    alive = (timeline.blocks[block] for block in timeline.alive_after(at_event))
    return tuple(block for block in alive if wanted(block))


def lookups(evidence: Evidence) -> tuple[tuple[int, ...], ...]:
    """The shapes that the word embedding gave in the first forward pass, one a call: what reaches the encoder.

    The word embedding is the one whose lookups hold most, and of equal ones the first: position and type embeddings
    have its shape at most. Weak case: a decoder that shares the encoder's module looks up there as well.
    """
    timeline = evidence.examination.timeline
    first = next((phase for phase in timeline.phases if phase.name is PhaseName.FORWARD), None)
    found: dict[str, list[Block]] = {}
    for event in timeline.events[first.begin : first.end] if first else ():
        block = timeline.blocks[event.block]
        if event.delta_bytes > 0 and block.op == _LOOKUP and len(block.shape) > 1:
            found.setdefault(block.module, []).append(block)
    largest = max(found.values(), key=lambda blocks: sum(block.bytes for block in blocks), default=[])
    return tuple(block.shape for block in largest)
