"""Run births and deaths of blocks through the allocator and keep what it did, event by event."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memdoctor.probes.simulated.allocator.blocks import Block
from memdoctor.probes.simulated.allocator.caching import CachingAllocator, OutOfMemory
from memdoctor.probes.simulated.allocator.segments import Segment
from memdoctor.probes.simulated.allocator.settings import AllocatorSettings
from memdoctor.records import Event


@dataclass(frozen=True, slots=True)
class SegmentEvent:
    """A segment got (``delta_bytes > 0``) or released (``< 0``) while event number ``event`` ran."""

    event: int
    address: int
    delta_bytes: int


@dataclass(frozen=True, slots=True)
class RanOut:
    """The request that could not be served: what it asked, the segment it needed, what the device had left."""

    event: int
    requested_bytes: int
    segment_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Replay:
    """What the allocator did. The three columns have one entry per event that succeeded.

    ``addresses`` is where the event's block lies, ``allocated`` and ``reserved`` the bytes after the event
    (``torch.cuda.memory_allocated()`` and ``memory_reserved()``). ``segments``, ``largest_free_block``,
    ``releasable`` (wholly free segments) and ``stranded`` (free bytes of the others) tell of the end, which
    is the request that failed when ``ran_out`` is not ``None``.
    """

    addresses: array[int]
    allocated: array[int]
    reserved: array[int]
    peak_allocated: int
    peak_reserved: int
    segment_events: tuple[SegmentEvent, ...]
    segments: tuple[Segment, ...]
    largest_free_block: int
    releasable: int
    stranded: int
    ran_out: RanOut | None


def replay(
    events: Iterable[Event],
    settings: AllocatorSettings | None = None,
    capacity_bytes: int | None = None,
    segment_addresses: Callable[[int], int] | None = None,
) -> Replay:
    """Replay ``events`` on an empty device of ``capacity_bytes`` (``None``: without end).

    ``segment_addresses`` maps the size of each new segment to its address. Running out of memory ends the
    replay and is a result. ``ValueError`` for a block that is born twice, dies unborn, or dies with another
    size than it was born with.
    """
    run = _Run(CachingAllocator(settings, capacity_bytes, segment_addresses))
    return run.result(run.drive(events))


class _Run:
    """A replay under way."""

    def __init__(self, allocator: CachingAllocator) -> None:
        self.allocator = allocator
        self.blocks: dict[int, Block | None] = {}  # None: born and dead, so that a second birth is noticed
        self.addresses = array("q")
        self.allocated = array("q")
        self.reserved = array("q")
        self.segment_events: list[SegmentEvent] = []

    def drive(self, events: Iterable[Event]) -> RanOut | None:
        """Feed every event to the allocator, until the end or until memory runs out."""
        allocator, changes = self.allocator, self.allocator.segment_changes
        address, allocated, reserved = self.addresses.append, self.allocated.append, self.reserved.append
        for number, event in enumerate(events):
            try:
                block = self._birth(event) if event.delta_bytes > 0 else self._death(event)
            except OutOfMemory as full:
                self._note(number)
                return RanOut(number, full.requested_bytes, full.segment_bytes, full.free_bytes)
            if changes:
                self._note(number)
            address(block)
            allocated(allocator.allocated)
            reserved(allocator.reserved)
        return None

    def _birth(self, event: Event) -> int:
        if event.block in self.blocks:
            raise ValueError(f"block {event.block} is allocated a second time")
        block = self.blocks[event.block] = self.allocator.malloc(event.delta_bytes)
        return block.address

    def _death(self, event: Event) -> int:
        block = self.blocks.get(event.block)
        if block is None:
            raise ValueError(f"block {event.block} is freed ({event.delta_bytes} bytes) but not allocated")
        if block.requested != -event.delta_bytes:
            raise ValueError(f"block {event.block} of {block.requested} bytes is freed as {-event.delta_bytes} bytes")
        address = block.address
        self.allocator.free(block)
        self.blocks[event.block] = None
        return address

    def _note(self, number: int) -> None:
        """Move the allocator's segment changes into the result, under the event that caused them."""
        changes = self.allocator.segment_changes
        self.segment_events += [SegmentEvent(number, address, delta) for address, delta in changes]
        changes.clear()

    def result(self, ran_out: RanOut | None) -> Replay:
        """Freeze what was seen."""
        return Replay(
            addresses=self.addresses,
            allocated=self.allocated,
            reserved=self.reserved,
            peak_allocated=max(self.allocated, default=0),
            peak_reserved=max(self.reserved, default=0),
            segment_events=tuple(self.segment_events),
            segments=self.allocator.segments,
            largest_free_block=self.allocator.largest_free_block,
            releasable=self.allocator.releasable,
            stranded=self.allocator.stranded,
            ran_out=ran_out,
        )
