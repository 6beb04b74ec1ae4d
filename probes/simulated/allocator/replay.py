"""Run births and deaths of blocks through the allocator and keep what it did, event by event."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from memdoctor.probes.simulated.allocator.blocks import Block
from memdoctor.probes.simulated.allocator.caching import CachingAllocator, Layout
from memdoctor.probes.simulated.allocator.oom import OutOfMemory
from memdoctor.probes.simulated.allocator.segments import Segment
from memdoctor.probes.simulated.allocator.settings import AllocatorSettings
from memdoctor.records import Event

Script = Callable[[Callable[[Callable[[int], int]], Layout]], Iterable[Event]]
"""Makes the events while they are replayed. It may ask for the allocator's layout (:meth:`CachingAllocator.layout`)
after the last event that it made, with a function from the number of a block alive to the name that it goes by."""

DEVICE_GRAIN = 2 << 20  # bytes: segments are multiples of it


@dataclass(frozen=True, slots=True)
class SegmentEvent:
    """A segment (or its pages) got (``delta_bytes > 0``) or released (``< 0``) while event number ``event`` ran."""

    event: int
    address: int
    delta_bytes: int


@dataclass(frozen=True, slots=True)
class RanOut:
    """The request that could not be served, with the figures of PyTorch's message: see :class:`OutOfMemory`.

    It asked for ``requested_bytes`` and needed ``segment_bytes``; of the device ``free_bytes`` were left, and the
    memory fraction (if there was one) allowed ``allowed_bytes``. ``allocated_bytes`` and ``reserved_bytes`` are the
    allocator's own at that moment, after it had released what it could.
    """

    event: int
    requested_bytes: int
    segment_bytes: int
    free_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    allowed_bytes: int | None = None

    @property
    def unallocated_bytes(self) -> int:
        """Bytes "reserved by PyTorch but unallocated"."""
        return self.reserved_bytes - self.allocated_bytes


@dataclass(frozen=True, slots=True)
class Replay:
    """What the allocator did. The three columns have one entry per event that succeeded.

    ``addresses`` is where the event's block lies, ``allocated`` and ``reserved`` the bytes after the event
    (``torch.cuda.memory_allocated()`` and ``memory_reserved()``), and the running sum of ``segment_events`` is
    ``reserved``. ``peak_reserved`` is ``torch.cuda.max_memory_reserved()``: it can be above all of the column, by
    pages that a request mapped before it had to release and retry. ``segments``, ``largest_free_block``,
    ``releasable`` (wholly free segments) and ``stranded`` (free bytes of the others) tell of the end, which
    is the request that failed when ``ran_out`` is not ``None``. ``events`` are those that succeeded.
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
    events: tuple[Event, ...] = ()


def replay(
    events: Iterable[Event] | Script,
    settings: AllocatorSettings | None = None,
    capacity_bytes: int | None = None,
    segment_addresses: Callable[[int], int] | None = None,
    empty_cache_at: Sequence[int] = (),
    device_bytes: int | None = None,
) -> Replay:
    """Replay ``events`` on an empty device of ``capacity_bytes`` (``None``: without end).

    ``segment_addresses`` maps the size of each new segment to its address. ``device_bytes`` is all memory of the
    device, of which ``settings.memory_fraction`` is taken (``None``: ``capacity_bytes``; without either there is no
    limit). Running out of memory ends the replay and is a result.

    ``torch.cuda.empty_cache()`` is called just before each event whose number is in ``empty_cache_at``, or after
    the last one where the number is that of all events. What it releases is noted under the event before which
    it was called, so that ``reserved`` tells of every event what was reserved right after it; a call after the
    last event has no event behind it and counts as part of the last one.

    ``ValueError`` for a block that is born twice, dies unborn, or dies with another size than it was born with, and
    for a call of ``empty_cache`` before an event that is not there.
    """
    run = _Run(CachingAllocator(settings, capacity_bytes, segment_addresses, device_bytes), empty_cache_at)
    return run.result(run.drive(events(run.layout) if callable(events) else events))


def replay_on_the_smallest(
    events: Sequence[Event] | Script, settings: AllocatorSettings | None = None, empty_cache_at: Sequence[int] = ()
) -> Replay:
    """Replay ``events`` on the smallest device that they were found to fit, to within 2 MiB.

    Without a limit the allocator never gives cached segments back, and reserves more than it needs: what a device
    must have lies between the most that is allocated and that. Fitting is taken to be monotone in between, which
    it nearly is; what is returned did fit.
    """
    best = replay(events, settings, empty_cache_at=empty_cache_at)
    low = best.peak_allocated // DEVICE_GRAIN
    while (middle := (low + best.peak_reserved // DEVICE_GRAIN) // 2) > low:
        tried = replay(events, settings, middle * DEVICE_GRAIN, empty_cache_at=empty_cache_at)
        if tried.ran_out is None:
            best = tried
        else:
            low = middle
    return best


class _Run:
    """A replay under way."""

    def __init__(self, allocator: CachingAllocator, empty_cache_at: Sequence[int]) -> None:
        self.allocator = allocator
        if any(number < 0 for number in empty_cache_at):
            raise ValueError(f"there is no event {min(empty_cache_at)} before which the cache could be emptied")
        self.empty_cache_at = sorted(set(empty_cache_at), reverse=True)
        self.blocks: dict[int, Block | None] = {}  # None: born and dead, so that a second birth is noticed
        self.addresses = array("q")
        self.allocated = array("q")
        self.reserved = array("q")
        self.segment_events: list[SegmentEvent] = []
        self.events: list[Event] = []

    def layout(self, name: Callable[[int], int]) -> Layout:
        """The allocator's, with blocks by their names."""
        alive = ((number, block) for number, block in self.blocks.items() if block is not None)
        return self.allocator.layout({id(block): name(number) for number, block in alive})

    def drive(self, events: Iterable[Event]) -> RanOut | None:
        """Feed every event to the allocator, until the end or until memory runs out."""
        allocator, changes = self.allocator, self.allocator.segment_changes
        succeeded = self.events.append
        address, allocated, reserved = self.addresses.append, self.allocated.append, self.reserved.append
        empty_cache_at = self._next_empty_cache()
        for number, event in enumerate(events):
            if number == empty_cache_at:
                allocator.empty_cache()
                empty_cache_at = self._next_empty_cache()
            try:
                block = self._birth(event) if event.delta_bytes > 0 else self._death(event)
            except OutOfMemory as full:
                self._note(number)
                return _ran_out(number, full)
            if changes:
                self._note(number)
            succeeded(event)
            address(block)
            allocated(allocator.allocated)
            reserved(allocator.reserved)
        self._finish(empty_cache_at)
        return None

    def _next_empty_cache(self) -> int | None:
        return self.empty_cache_at.pop() if self.empty_cache_at else None

    def _finish(self, empty_cache_at: int | None) -> None:
        """Empty the cache after the last event, if that is asked for."""
        if empty_cache_at is None:
            return
        count = len(self.addresses)
        if empty_cache_at != count or self.empty_cache_at:
            wrong = self.empty_cache_at[0] if self.empty_cache_at else empty_cache_at
            raise ValueError(f"the cache cannot be emptied before event {wrong}: there are {count} events")
        self.allocator.empty_cache()
        if count:
            self._note(count - 1)
            self.reserved[-1] = self.allocator.reserved

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
            peak_reserved=self.allocator.peak_reserved,
            segment_events=tuple(self.segment_events),
            segments=self.allocator.segments,
            largest_free_block=self.allocator.largest_free_block,
            releasable=self.allocator.releasable,
            stranded=self.allocator.stranded,
            ran_out=ran_out,
            events=tuple(self.events),
        )


def _ran_out(number: int, full: OutOfMemory) -> RanOut:
    return RanOut(
        event=number,
        requested_bytes=full.requested_bytes,
        segment_bytes=full.segment_bytes,
        free_bytes=full.free_bytes,
        allocated_bytes=full.allocated_bytes,
        reserved_bytes=full.reserved_bytes,
        allowed_bytes=full.allowed_bytes,
    )
