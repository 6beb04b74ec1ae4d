"""Where the segments lay, worked out from a timeline, which knows their sizes and the addresses of the blocks.

The allocator gets a segment for one request and serves that from its start (``DeviceCachingAllocator::malloc``,
``alloc_block``), so a segment begins where the block lies for which it was reserved: this is exact. A segment that is
released is one that is wholly free and of that size; where several are, it is one of which no part is used again.
Pages of expandable segments are mapped from the first address on that the block needs and that has no memory
(``try_allocate_expandable_block``), and released as whole pages of a free run (``unmap_block``).
"""

from __future__ import annotations

from dataclasses import dataclass

from memdoctor.records import Timeline
from memdoctor.reports.handover.spaces import Fixed, Growing, Underivable

__all__ = ["Layout", "SegmentChange", "layout_of"]


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """Memory got from the driver (``delta_bytes > 0``) or given back, before event ``event`` or, ``late``, after it."""

    event: int
    address: int
    delta_bytes: int
    late: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Every change in order, and the segments held at the end, (address, bytes) in order of address.

    ``exact`` is false where the timeline does not say where segments lay: then there are no changes, and the segments
    are the stretches of addresses in which blocks ever lay.
    """

    changes: tuple[SegmentChange, ...]
    segments: tuple[tuple[int, int], ...]
    exact: bool


def layout_of(timeline: Timeline, *, expandable: bool, refused: int | None = None) -> Layout:
    """The segments of a timeline; those of event ``refused``, which was not served, are not got."""
    try:
        return _Walk(timeline, Growing() if expandable else Fixed(_reuses(timeline)), refused).layout()
    except Underivable:
        return Layout((), _stretches(timeline, refused), exact=False)


class _Walk:
    """Goes through a timeline once, with the segments as they are."""

    def __init__(self, timeline: Timeline, space: Fixed | Growing, refused: int | None) -> None:
        self.timeline, self.space, self.refused = timeline, space, refused
        self.changes: list[SegmentChange] = []
        self.deltas: dict[int, list[int]] = {}
        for segment in timeline.segments:
            self.deltas.setdefault(segment.event, []).append(segment.delta_bytes)
        self.last = len(timeline.events) - 1
        self.clears_at_end = len(timeline.events) in timeline.cache_clears

    def layout(self) -> Layout:
        blocks, space = self.timeline.blocks, self.space
        for number, event in enumerate(self.timeline.events):
            deltas = self.deltas.get(number, ())
            early, late = self._parted(number, list(deltas)) if deltas else ((), ())
            block = blocks[event.block]
            for delta in early:
                self._change(number, delta, block.address, block.bytes)
            if number != self.refused:
                if event.delta_bytes > 0:
                    space.born(block.address, block.allocated_bytes)
                else:
                    space.died(block.address, block.allocated_bytes)
            for delta in late:
                self._change(number, delta, block.address, block.bytes, late=True)
        return Layout(tuple(self.changes), tuple(space.segments()), exact=True)

    def _parted(self, number: int, deltas: list[int]) -> tuple[list[int], list[int]]:
        """What the allocator did before it served the event, and what an emptied cache gave back after the last."""
        if number == self.refused:
            deltas = [delta for delta in deltas if delta < 0]
        if number != self.last or not self.clears_at_end:
            return deltas, []
        got = max((index + 1 for index, delta in enumerate(deltas) if delta > 0), default=0)
        return deltas[:got], deltas[got:]

    def _change(self, number: int, delta: int, address: int, size: int, *, late: bool = False) -> None:
        at = self.space.got(delta, address, size) if delta > 0 else self.space.given_back(-delta, number)
        self.changes.append(SegmentChange(number, at, delta, late))


def _reuses(timeline: Timeline) -> list[tuple[int, int, bool]]:
    """Births as (address, event, whether a segment was got for it), in order of address."""
    got = {segment.event for segment in timeline.segments if segment.delta_bytes > 0}
    return sorted(
        (timeline.blocks[event.block].address, number, number in got)
        for number, event in enumerate(timeline.events)
        if event.delta_bytes > 0
    )


def _stretches(timeline: Timeline, refused: int | None) -> tuple[tuple[int, int], ...]:
    unserved = None if refused is None else timeline.events[refused].block
    served = (block for number, block in enumerate(timeline.blocks) if number != unserved)
    merged: list[list[int]] = []
    for begin, end in sorted((block.address, block.address + block.allocated_bytes) for block in served):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return tuple((begin, end - begin) for begin, end in merged)
