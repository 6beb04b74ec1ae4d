"""Event by event: two steps that are the same sequence of tensors, and what they say of a third.

Every tensor of a step is a fixed part plus a part per sample, so its size at any batch follows from two. What a kernel
takes for itself is none: staging buffers grow in steps and end at what the card can work on at once. It is left out
when sequences are compared, and lies on a line between the larger of the small batches and the target's own probe.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memdoctor.analysis import phase_of
from memdoctor.records import Block, Category, Event, Examination, Prediction, Timeline
from memdoctor.scaling.pair import Pair


@dataclass(frozen=True, slots=True)
class Need:
    """Whether the card can serve a sequence of events, and what the allocator reserves for it, when that is asked."""

    fits: bool
    reserved: Callable[[], int]


Replayer = Callable[[Sequence[Event], Sequence[int]], Need]
"""Replays events on the target's card, its cache emptied before those numbered in the second argument; handed in, since
the allocator belongs to the probes."""


def aligned(one: Examination, two: Examination) -> bool:
    """The two steps are the same operators, births and deaths of tensors in the same order; only sizes differ."""
    return _sequence(one.timeline) == _sequence(two.timeline)


def _sequence(timeline: Timeline) -> tuple[object, ...]:
    """All that two aligned steps have in common, instants counted in events of tensors."""
    blocks = timeline.blocks
    ordinals = {number: ordinal for ordinal, number in enumerate(_tensors(timeline))}
    of_tensors = [number for number, event in enumerate(timeline.events) if event.block in ordinals]
    events = [timeline.events[number] for number in of_tensors]
    return (
        [(blocks[number].op, blocks[number].module) for number in ordinals],
        [(ordinals[event.block], event.delta_bytes > 0) for event in events],
        [(phase.step, phase.name, bisect_left(of_tensors, phase.begin)) for phase in timeline.phases],
        [bisect_left(of_tensors, clear) for clear in timeline.cache_clears],
    )


def _tensors(timeline: Timeline) -> Iterator[int]:
    """The numbers of the blocks that no kernel or library took for itself."""
    return (number for number, block in enumerate(timeline.blocks) if block.category is not Category.WORKSPACE)


class EventModel:
    """Predicts on the timeline of the target, where it is aligned with the pair, else on the pair's larger one."""

    method = "event by event"

    def __init__(self, pair: Pair, target: Examination, replayed: Replayer) -> None:
        larger = target.workload.batch_size > pair.next.workload.batch_size and aligned(pair.next, target)
        template = target if larger else pair.next
        self._seq_length = pair.small.workload.seq_length
        self._timeline = template.timeline
        self._replayed = replayed
        self._batches = (pair.small.workload.batch_size, pair.next.workload.batch_size, template.workload.batch_size)
        self._tensors = _tensor_lines(pair, template.timeline)
        self._scratch = _scratch_of(pair, template.timeline)
        self._made: dict[int, tuple[int, int, Need]] = {}

    def predict(self, batch: int) -> Prediction:
        """What a step at this batch takes."""
        best, at, need = self._needed(batch)
        return Prediction(
            batch_size=batch, seq_length=self._seq_length, allocated_bytes=best, reserved_bytes=need.reserved(),
            phase=phase_of(self._timeline, at).name.value, fits=need.fits,
        )  # fmt: skip

    def each(self, batch: int) -> int:
        """What a sample takes of the tensors that are alive at its peak; kernels' own memory is none of a sample."""
        alive: set[int] = set()
        for event in self._timeline.events[: self._needed(batch)[1] + 1]:
            (alive.add if event.delta_bytes > 0 else alive.discard)(event.block)
        return sum(self._tensors[block][1] for block in alive if block in self._tensors)

    def fits(self, batch: int) -> bool:
        """Whether it fits the target's card."""
        return self._needed(batch)[2].fits

    def _needed(self, batch: int) -> tuple[int, int, Need]:
        """The most bytes in use, the event after which they are, and what the allocator makes of it; replayed once."""
        if batch not in self._made:
            self._made[batch] = self._replay(batch)
        return self._made[batch]

    def _replay(self, batch: int) -> tuple[int, int, Need]:
        sizes = [self._size(number, batch) for number in range(len(self._timeline.blocks))]
        in_use, best, at = 0, 0, 0
        kept: list[int] = []  # events of blocks that are there at this batch
        events: list[Event] = []
        for number, event in enumerate(self._timeline.events):
            size = sizes[event.block]
            if size <= 0:
                continue
            kept.append(number)
            events.append(Event(event.block, size if event.delta_bytes > 0 else -size))
            in_use += events[-1].delta_bytes
            if in_use > best:
                best, at = in_use, number
        clears = [bisect_left(kept, clear) for clear in self._timeline.cache_clears]
        return best, at, self._replayed(events, clears)

    def _size(self, number: int, batch: int) -> int:
        if number in self._tensors:
            fixed, each = self._tensors[number]
            return fixed + batch * each
        small, next_, last = self._batches
        at_small, at_next, at_last = self._scratch[number]
        if batch <= next_ or next_ == last:
            return max(at_next + (at_next - at_small) * (batch - next_) // (next_ - small), 0)
        return max(at_next + (at_last - at_next) * (batch - next_) // (last - next_), 0)


def _tensor_lines(pair: Pair, template: Timeline) -> dict[int, tuple[int, int]]:
    small, larger = pair.small.timeline, pair.next.timeline
    lines = [
        pair.line(small.blocks[one].bytes, larger.blocks[two].bytes)
        for one, two in zip(_tensors(small), _tensors(larger), strict=True)
    ]
    return dict(zip(_tensors(template), lines, strict=True))


def _scratch_of(pair: Pair, template: Timeline) -> dict[int, tuple[int, int, int]]:
    """Each block of a kernel in the template: its bytes at the two small batches, and its own.

    The same operator of the same module is the same kernel, by order. One that took nothing at a small batch took
    nothing there.
    """
    small, next_ = ({key: b.bytes for key, _, b in _numbered(of.timeline)} for of in (pair.small, pair.next))
    return {n: (small.get(key, 0), next_.get(key, 0), block.bytes) for key, n, block in _numbered(template)}


def _numbered(timeline: Timeline) -> Iterator[tuple[tuple[str, str, int], int, Block]]:
    """Every block of a kernel under a name that holds in both timelines: operator, module, and which of them it is."""
    count: Counter[tuple[str, str]] = Counter()
    for number, block in enumerate(timeline.blocks):
        if block.category is Category.WORKSPACE:
            yield (block.op, block.module, count[block.op, block.module]), number, block
            count[block.op, block.module] += 1
