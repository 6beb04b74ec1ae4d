"""From two small batches to any batch: event by event where their steps are the same sequence, else phase by phase.

Batch 1 and 2 are those two, unless batch 1 is different in kind: with one row nothing is broadcast, so BERT sums no
gradient over rows; then 2 and 3 are. Every storage of a training step is a fixed part plus a part per sample, so its
size at any batch follows from two. Which event is the peak may change with the batch; taking the maximum last gets that
right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, takewhile

from memdoctor.analysis import peak_of, phase_of, phases_of
from memdoctor.records import (
    Event,
    Examination,
    PhaseLine,
    PhaseUse,
    Prediction,
    PredictionCheck,
    Scaling,
)

LARGEST_BATCH = 2**20  # beyond what anybody trains: where even this fits, nothing larger is looked at


@dataclass(frozen=True, slots=True)
class Need:
    """What the allocator needs for a sequence of events, and whether the card can serve it."""

    reserved_bytes: int
    fits: bool


Replayer = Callable[[Sequence[Event], Sequence[int]], Need]
"""Replays events on the target's card, its cache emptied before those numbered in the second argument; handed in, since
the allocator belongs to the probes."""


def scaling_of(small: Examination, next_: Examination, target: Examination, replayed: Replayer) -> Scaling:
    """What two batch sizes one apart say of all others, beside the target's own probe."""
    pair = _Pair(small, next_)
    model = _EventModel(pair, replayed) if aligned(small, next_) else _PhaseModel(pair, target)
    predict = cache(model.predict)  # a prediction is a replay, and the same batches are asked for again
    lines = pair.phase_lines()
    batch = target.workload.batch_size
    check = predict(batch)
    probed = peak_of(target)
    line = max((line for line in lines if line.name == check.phase), key=lambda line: _at(line, batch))
    return Scaling(
        method=model.method,
        from_batches=(small.workload.batch_size, next_.workload.batch_size),
        per_sample_bytes=line.per_sample_bytes,
        fixed_bytes=line.fixed_bytes,
        phases=lines,
        predicted=tuple(predict(size) for size in _batches(batch)),
        largest_batch_that_fits=_largest(predict),
        check=PredictionCheck(
            batch_size=batch,
            predicted_allocated_bytes=check.allocated_bytes,
            probed_allocated_bytes=probed.allocated_bytes,
            difference_bytes=check.allocated_bytes - probed.allocated_bytes,
            predicted_reserved_bytes=check.reserved_bytes,
            probed_reserved_bytes=probed.reserved_bytes,
        ),
    )


def aligned(one: Examination, two: Examination) -> bool:
    """The two steps are the same operators, births and deaths in the same order; only sizes differ."""
    left, right = one.timeline, two.timeline
    return (
        len(left.blocks) == len(right.blocks)
        and all(a.op == b.op and a.module == b.module for a, b in zip(left.blocks, right.blocks, strict=True))
        and [(e.block, e.delta_bytes > 0) for e in left.events] == [(e.block, e.delta_bytes > 0) for e in right.events]
        and left.phases == right.phases
        and left.cache_clears == right.cache_clears
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two examinations whose batch sizes are one apart: every size in them is a line in the batch size."""

    small: Examination
    next: Examination

    def line(self, small_bytes: int, next_bytes: int) -> tuple[int, int]:
        """Fixed bytes and bytes per sample."""
        each = next_bytes - small_bytes
        return small_bytes - self.small.workload.batch_size * each, each

    def phase_lines(self) -> tuple[PhaseLine, ...]:
        """The line of each phase's peak."""

        def line(first: PhaseUse, second: PhaseUse) -> PhaseLine:
            fixed, each = self.line(first.peak_allocated_bytes, second.peak_allocated_bytes)
            return PhaseLine(step=first.step, name=first.name, fixed_bytes=fixed, per_sample_bytes=each)

        return tuple(line(*uses) for uses in zip(phases_of(self.small), phases_of(self.next), strict=True))


class _EventModel:
    """Every block's bytes are a line in the batch size."""

    method = "event by event"

    def __init__(self, pair: _Pair, replayed: Replayer) -> None:
        self._seq_length = pair.small.workload.seq_length
        self._timeline = pair.small.timeline
        self._replayed = replayed
        blocks = zip(self._timeline.blocks, pair.next.timeline.blocks, strict=True)
        self._lines = [pair.line(small.bytes, larger.bytes) for small, larger in blocks]

    def predict(self, batch: int) -> Prediction:
        sizes = [fixed + batch * each for fixed, each in self._lines]
        in_use, best, at = 0, 0, 0
        events: list[Event] = []
        clears = list(self._timeline.cache_clears)
        moved = []
        for number, event in enumerate(self._timeline.events):
            while clears and clears[0] <= number:
                moved.append(len(events))
                del clears[0]
            size = sizes[event.block]
            if size <= 0:  # a block that is not there at smaller batches
                continue
            events.append(Event(event.block, size if event.delta_bytes > 0 else -size))
            in_use += events[-1].delta_bytes
            if in_use > best:
                best, at = in_use, number
        need = self._replayed(events, [*moved, *(len(events) for _ in clears)])
        return Prediction(
            batch_size=batch, seq_length=self._seq_length, allocated_bytes=best, reserved_bytes=need.reserved_bytes,
            phase=phase_of(self._timeline, at).name.value, fits=need.fits,
        )  # fmt: skip


class _PhaseModel:
    """Every phase's peak is a line in the batch size; overhead is taken as what the target was probed to have."""

    method = "phase by phase"

    def __init__(self, pair: _Pair, target: Examination) -> None:
        self._seq_length = target.workload.seq_length
        self._lines = pair.phase_lines()
        peak = peak_of(target)
        self._overhead = peak.reserved_bytes - peak.allocated_bytes
        self._limit = target.device.allocator_limit_bytes

    def predict(self, batch: int) -> Prediction:
        highest = max(self._lines, key=lambda line: _at(line, batch))
        return Prediction(
            batch_size=batch, seq_length=self._seq_length, allocated_bytes=_at(highest, batch), reserved_bytes=None,
            phase=highest.name, fits=_at(highest, batch) + self._overhead <= self._limit,
        )  # fmt: skip


def _at(line: PhaseLine, batch: int) -> int:
    return line.fixed_bytes + batch * line.per_sample_bytes


def _batches(target: int) -> list[int]:
    """1, 2, 4 ... to four times the target, and the target."""
    powers = [2**power for power in range(LARGEST_BATCH.bit_length()) if 2**power <= max(4 * target, 8)]
    return sorted({*powers, target})


def _largest(predict: Callable[[int], Prediction]) -> int | None:
    """The largest batch that is predicted to fit; ``None`` where not even one does."""
    powers = takewhile(lambda batch: batch <= LARGEST_BATCH, (2**power for power in count()))
    too_large = next((batch for batch in powers if not predict(batch).fits), LARGEST_BATCH + 1)
    fitting = bisect_left(range(1, too_large), True, key=lambda batch: not predict(batch).fits)
    return fitting or None
