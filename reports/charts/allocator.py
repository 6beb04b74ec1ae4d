"""What the allocator holds at the peak: segments, what is used of them, and the free blocks between."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from memdoctor.analysis import peak_event
from memdoctor.records import Diagnosis, Timeline
from memdoctor.reports.handover.layout import layout_of
from memdoctor.reports.handover.snapshot import is_expandable


@dataclass(frozen=True, slots=True)
class AllocatorState:
    """The instant at which the most is in use. ``requested`` + ``rounding`` + ``free_bytes`` = ``reserved``.

    ``largest_free`` is the largest stretch of addresses in which nothing lies: what a tensor can get without a new
    segment, where it is of the same pool. ``segments`` are runs of pages where segments are expandable.
    """

    segments: int
    reserved: int
    requested: int
    rounding: int
    free_bytes: int
    free_blocks: int
    largest_free: int


def allocator_at_peak(diagnosis: Diagnosis) -> AllocatorState | None:
    """The state; ``None`` where there is no timeline, or it does not say where its segments lay."""
    if diagnosis.timeline is None or not diagnosis.timeline.events:
        return None
    timeline = _until(diagnosis.timeline, peak_event(diagnosis.timeline))
    layout = layout_of(timeline, expandable=is_expandable(diagnosis.device.alloc_conf))
    if not layout.exact:
        return None
    blocks = [timeline.blocks[number] for number in timeline.alive_after(len(timeline.events) - 1)]
    used = sorted((block.address, block.address + block.allocated_bytes) for block in blocks)
    gaps = list(_gaps(layout.segments, used))
    requested = sum(block.bytes for block in blocks)
    return AllocatorState(
        segments=len(layout.segments),
        reserved=sum(size for _, size in layout.segments),
        requested=requested,
        rounding=sum(block.allocated_bytes for block in blocks) - requested,
        free_bytes=sum(gaps),
        free_blocks=len(gaps),
        largest_free=max(gaps, default=0),
    )


def _until(timeline: Timeline, event: int) -> Timeline:
    """The timeline up to this event, the event among them."""
    end = event + 1
    phases = tuple(replace(p, end=min(p.end, end)) for p in timeline.phases if p.begin < end)
    return replace(
        timeline, events=timeline.events[:end], phases=phases,
        segments=tuple(segment for segment in timeline.segments if segment.event < end),
        cache_clears=tuple(clear for clear in timeline.cache_clears if clear < end),
    )  # fmt: skip


def _gaps(segments: tuple[tuple[int, int], ...], used: list[tuple[int, int]]) -> Iterator[int]:
    for begin, size in segments:
        at = begin
        for first, last in used[bisect_left(used, (begin, 0)) : bisect_left(used, (begin + size, 0))]:
            if first > at:
                yield first - at
            at = last
        if at < begin + size:
            yield begin + size - at
