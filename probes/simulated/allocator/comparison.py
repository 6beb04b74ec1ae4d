"""A recorded history replayed by the model, and how far the two agree."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from memdoctor.probes.simulated.allocator.blocks import Block
from memdoctor.probes.simulated.allocator.caching import CachingAllocator
from memdoctor.probes.simulated.allocator.segments import Segment
from memdoctor.probes.simulated.allocator.settings import AllocatorSettings
from memdoctor.probes.simulated.allocator.traces import Trace, TraceEvent


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the model did on one trace. ``exact`` counts allocations at the recorded address.

    ``releases_exact``: each time segments were released, the model would have released the same ones.
    ``final_segments`` are the model's. Bytes where not said otherwise.
    """

    name: str
    allocations: int
    exact: int
    releases_exact: bool
    recorded_peak_reserved: int
    peak_reserved: int
    final_segments: tuple[Segment, ...]

    @property
    def is_exact(self) -> bool:
        """Whether every address and the peak of reserved memory are as recorded."""
        return self.exact == self.allocations and self.peak_reserved == self.recorded_peak_reserved


def compare(trace: Trace, settings: AllocatorSettings | None = None) -> Comparison:
    """Replay ``trace`` from its start and compare address by address.

    New segments are put where the trace recorded them, since the driver chooses that and not the allocator;
    *when* one is needed, and how large, is the model's own finding. Releases (``F``) are followed: they
    come from ``empty_cache()`` in the program, or from a device that was full, and a trace tells neither.
    What they release is the model's own finding again, by the rule that both causes share.
    """
    rerun = _Rerun(trace, settings)
    handlers: dict[str, Callable[[TraceEvent], None]] = {"a": rerun.malloc, "f": rerun.free, "S": rerun.announce}
    for action, run in groupby(trace.events, key=lambda event: event.action):
        if action == "F":
            rerun.release(list(run))
        else:
            for event in run:
                handlers[action](event)
    return rerun.result()


class _Rerun:
    """A comparison under way."""

    def __init__(self, trace: Trace, settings: AllocatorSettings | None) -> None:
        self.trace = trace
        self.allocator = CachingAllocator(settings, place_segment=self._place)
        self.blocks: dict[int, Block] = {}  # by recorded address
        self.announced: deque[TraceEvent] = deque()
        self.held: dict[int, int] = {}
        self.allocations = self.exact = 0
        self.releases_exact = True
        for segment, live in trace.start:
            blocks = self.allocator.adopt(segment.address, segment.size, small=segment.small, live=live)
            self.blocks |= {block.address: block for block in blocks}
            self.held[segment.address] = segment.size
        self.peak = self.allocator.reserved
        ends = [address + size for address, size in self.held.items()]
        ends += [event.address + event.size for event in trace.events if event.action == "S"]
        self.spare = max(ends, default=0)

    def announce(self, event: TraceEvent) -> None:
        """Note where the segment lies that the next allocation is going to need."""
        self.announced.append(event)

    def malloc(self, event: TraceEvent) -> None:
        """Allocate, and see whether the block lies where it was recorded."""
        block = self.blocks[event.address] = self.allocator.malloc(event.size)
        self.allocations += 1
        self.exact += block.address == event.address
        self.announced.clear()
        self._settle()

    def free(self, event: TraceEvent) -> None:
        """Free the block that the recording knows by this address."""
        self.allocator.free(self.blocks.pop(event.address))

    def release(self, events: list[TraceEvent]) -> None:
        """Release what is wholly free, and see whether that is what was recorded."""
        self.allocator.empty_cache()
        released = {(address, -delta) for address, delta in self._settle()}
        self.releases_exact &= released == {(event.address, event.size) for event in events}

    def result(self) -> Comparison:
        """Sum up."""
        return Comparison(
            name=self.trace.name,
            allocations=self.allocations,
            exact=self.exact,
            releases_exact=self.releases_exact,
            recorded_peak_reserved=self.trace.peak_reserved,
            peak_reserved=self.peak,
            final_segments=self.allocator.segments,
        )

    def _place(self, size: int) -> int:
        """Return the recorded address; if the model has strayed from the recording, one that nobody has."""
        if self.announced:
            event = self.announced.popleft()
            end = event.address + event.size
            taken = any(at < end and event.address < at + held for at, held in self.held.items())
            if event.size == size and not taken:
                return event.address
        address = self.spare
        self.spare += size
        return address

    def _settle(self) -> list[tuple[int, int]]:
        """Take over the allocator's segment changes, and return them."""
        changes = list(self.allocator.segment_changes)
        self.allocator.segment_changes.clear()
        for address, delta in changes:
            if delta > 0:
                self.held[address] = delta
            else:
                del self.held[address]
        self.peak = max(self.peak, self.allocator.reserved)
        return changes
