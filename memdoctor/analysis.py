"""From an examination to numbers: peak, breakdown, phases, modules, tensors. Pure, and from the file alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod

from memdoctor.records import (
    Block,
    Breakdown,
    Category,
    Completed,
    Device,
    Examination,
    ModuleUse,
    Peak,
    Phase,
    PhaseName,
    PhaseUse,
    RanOut,
    RanOutAt,
    TensorGroup,
    Timeline,
    Verdict,
)
from memdoctor.units import format_bytes

_PER_PARAMETER = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATE)
_LAYER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def peak_event(timeline: Timeline) -> int:
    """The first event after which the most memory is in use."""
    in_use = timeline.in_use()
    return max(range(len(in_use)), key=in_use.__getitem__)


def phase_of(timeline: Timeline, event: int) -> Phase:
    """The phase that event number ``event`` belongs to."""
    return next(phase for phase in timeline.phases if phase.begin <= event < phase.end)


def peak_of(examination: Examination) -> Peak:
    """The peak of the run, over all steps, as PyTorch's own counters would tell it."""
    timeline, device = examination.timeline, examination.device
    at = peak_event(timeline)
    phase = phase_of(timeline, at)
    reserved = max(timeline.reserved())
    return Peak(
        allocated_bytes=timeline.in_use()[at],
        max_memory_allocated_bytes=max(timeline.memory_allocated()),
        reserved_bytes=reserved,
        device_bytes=reserved + device.context_bytes + device.other_processes_bytes,
        phase=phase.name.value,
        step=phase.step,
    )


def breakdown_of(examination: Examination) -> Breakdown:
    """Where the card's bytes are at the peak.

    The categories are those of the instant at which the most is in use; the allocator's overhead is counted
    against the most that it reserves over the run, which it keeps from the second step on.
    """
    timeline = examination.timeline
    alive = timeline.alive_after(peak_event(timeline))
    return _breakdown(examination, by_category(timeline.blocks[block] for block in alive), max(timeline.reserved()))


def by_category(blocks: Iterable[Block]) -> Counter[Category]:
    """Bytes asked for, by category."""
    total: Counter[Category] = Counter()
    for block in blocks:
        total[block.category] += block.bytes
    return total


def _breakdown(examination: Examination, categories: Mapping[Category, int], reserved: int) -> Breakdown:
    device = examination.device
    held = {category.value: categories.get(category, 0) for category in Category}
    return Breakdown(
        **held,
        allocator_overhead=reserved - sum(held.values()),
        context=device.context_bytes,
        other_processes=device.other_processes_bytes,
        free=device.allocator_limit_bytes - reserved,
    )


def phases_of(examination: Examination) -> tuple[PhaseUse, ...]:
    """Every phase of every step. A phase's peak counts what was in use when it began, as PyTorch's counters do."""
    timeline = examination.timeline
    in_use, reserved = timeline.in_use(), timeline.reserved()
    spans = [range(max(phase.begin - 1, 0), max(phase.end, 1)) for phase in timeline.phases]
    peaks = [max(span, key=in_use.__getitem__) for span in spans]
    held = _categories_after(timeline, set(peaks))
    return tuple(
        PhaseUse(
            step=phase.step,
            name=phase.name.value,
            peak_allocated_bytes=in_use[at],
            end_allocated_bytes=in_use[max(phase.end - 1, 0)],
            breakdown=_breakdown(examination, held[at], reserved[at]),
        )
        for phase, at in zip(timeline.phases, peaks, strict=True)
    )


def _categories_after(timeline: Timeline, wanted: set[int]) -> dict[int, Counter[Category]]:
    """Bytes by category after each of the ``wanted`` events, in one pass."""
    now: Counter[Category] = Counter()
    found = {}
    for number, event in enumerate(timeline.events):
        now[timeline.blocks[event.block].category] += event.delta_bytes
        if number in wanted:
            found[number] = Counter(now)
    return found


def modules_of(examination: Examination) -> tuple[ModuleUse, ...]:
    """Who holds what at the peak, by module path, largest first."""
    timeline = examination.timeline
    held: dict[str, Counter[Category]] = {}
    for number in timeline.alive_after(peak_event(timeline)):
        block = timeline.blocks[number]
        held.setdefault(block.module, Counter())[block.category] += block.bytes
    uses = [
        ModuleUse(path=path, **{category.value: size for category, size in categories.items()})
        for path, categories in held.items()
    ]
    return tuple(sorted(uses, key=lambda use: (-use.total, use.path)))


def tensors_of(examination: Examination) -> tuple[TensorGroup, ...]:
    """The tensors alive at the peak, alike ones together, largest group first."""
    timeline = examination.timeline
    births = _birth_phases(timeline)
    members: dict[tuple[str, tuple[int, ...], Category, str, str, str], list[Block]] = {}
    for number in timeline.alive_after(peak_event(timeline)):
        block = timeline.blocks[number]
        key = (block.dtype, block.shape, block.category, alike(block.module), block.op, births[number])
        members.setdefault(key, []).append(block)
    listed = [
        TensorGroup(
            bytes=sum(block.bytes for block in blocks), count=len(blocks), dtype=key[0], shape=key[1], category=key[2],
            module=key[3] if len({block.module for block in blocks}) > 1 else blocks[0].module, op=key[4], phase=key[5],
        )
        for key, blocks in members.items()
    ]  # fmt: skip
    return tuple(sorted(listed, key=lambda group: (-group.bytes, group.module, group.op, group.shape)))


def alike(module: str) -> str:
    """A module's path with ``*`` for the number of its layer."""
    return _LAYER.sub("*", module)


def _birth_phases(timeline: Timeline) -> dict[int, str]:
    births = {}
    for phase in timeline.phases:
        for event in timeline.events[phase.begin : phase.end]:
            if event.delta_bytes > 0:
                births[event.block] = phase.name.value
    return births


def verdict_of(examination: Examination) -> Verdict:
    """Does it fit, by how much, and what holds most, in one sentence with its arithmetic.

    Whether it fits is what the replay on this card said, with the allocator's own retries, not a comparison of
    two sums.
    """
    parts, peak = breakdown_of(examination), peak_of(examination)
    fits = isinstance(examination.outcome, Completed)
    held = {category: getattr(parts, category.value) for category in Category}
    cause = max(held, key=lambda category: held[category])
    share = 100 * held[cause] / parts.allocated
    groups = tensors_of(examination)
    parameters = sum(_elements(group) for group in groups if group.category is Category.PARAMETERS)
    arithmetic = _arithmetic([group for group in groups if group.category is cause], parameters)
    cut_short = not fits and examination.provenance.mode == "measured"  # nothing is known of what would have come
    margin = f"{format_bytes(abs(parts.free))} {'to spare' if parts.free >= 0 else 'too much'}"
    margin, then = (f"at least {margin}", "until then ") if cut_short else (margin, "")
    gathers = peak.phase == PhaseName.EVALUATION
    phase = f"{peak.phase}, which gathers the predictions of all samples" if gathers else peak.phase
    sentence = (
        f"{'Fits' if fits else 'Does not fit'}, {margin}: the peak {then}is in {phase}, and {share:.0f} % of it is "
        f"{cause.value.replace('_', ' ')}, {format_bytes(held[cause])}{arithmetic}."
    )
    return Verdict(fits=fits, headroom_bytes=parts.free, cause=cause.value, sentence=sentence)


def ran_out_at(examination: Examination) -> RanOutAt | None:
    """Where the run stopped on this card; ``None`` where it did not."""
    outcome, timeline = examination.outcome, examination.timeline
    if not isinstance(outcome, RanOut):
        return None
    phase = phase_of(timeline, outcome.event)
    block = timeline.blocks[timeline.events[outcome.event].block]
    return RanOutAt(
        step=phase.step,
        phase=phase.name.value,
        module=block.module,
        op=block.op,
        requested_bytes=outcome.requested_bytes,
        free_bytes=outcome.free_bytes,
        segment_bytes=outcome.segment_bytes,
        allocated_bytes=outcome.allocated_bytes,
        reserved_bytes=outcome.reserved_bytes,
        message=_out_of_memory_message(outcome, examination.device),
        event=outcome.event,
    )


def _out_of_memory_message(full: RanOut, device: Device) -> str:
    """What PyTorch prints (``CUDACachingAllocator.cpp``, from 2.2 on); empty where a file does not have its figures."""
    if full.segment_bytes is None or full.allocated_bytes is None or full.reserved_bytes is None:
        return ""
    in_use = full.reserved_bytes + device.context_bytes
    return (
        f"CUDA out of memory. Tried to allocate {format_bytes(full.segment_bytes)}. GPU 0 has a total capacity of "
        f"{format_bytes(device.total_bytes)} of which {format_bytes(full.free_bytes)} is free. Including non-PyTorch "
        f"memory, this process has {format_bytes(in_use)} memory in use. Of the allocated memory "
        f"{format_bytes(full.allocated_bytes)} is allocated by PyTorch, and "
        f"{format_bytes(full.reserved_bytes - full.allocated_bytes)} is reserved by PyTorch but unallocated."
    )


def _arithmetic(groups: list[TensorGroup], parameters: int) -> str:
    """The largest contribution to one category as a product: ``(12 x 8x512x3072 x 4 B = 576.00 MiB)``.

    What is kept for every parameter is a multiple of their number; the rest is told by its largest groups.
    """
    elements = sum(_elements(group) for group in groups)
    width = _element_bytes(groups[0]) if groups else 0
    if groups and groups[0].category in _PER_PARAMETER and parameters and width:
        times = elements // parameters
        product, held = times * parameters * width, sum(group.bytes for group in groups)
        if held * 99 < product * 100 <= held * 100:  # nearly all of it, and not more than there is
            return f" ({times} x {parameters:,} parameters x {width} B = {format_bytes(product)})"
    largest = [
        f"{group.count} x {'x'.join(map(str, group.shape)) or '1'} x {element} B = {format_bytes(group.bytes)}"
        for group in groups[:2]
        if (element := _element_bytes(group))
    ]
    return f" ({'; '.join(largest)})" if largest else ""


def _elements(group: TensorGroup) -> int:
    return group.count * prod(group.shape)


def _element_bytes(group: TensorGroup) -> int:
    elements = _elements(group)
    return group.bytes // elements if elements and group.bytes % elements == 0 else 0
