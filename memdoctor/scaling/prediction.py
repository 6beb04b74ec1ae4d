"""From two small batches to any batch: event by event where their steps are the same sequence, else phase by phase.

Batch 1 and 2 are those two, unless batch 1 is different in kind: with one row nothing is broadcast, so BERT sums no
gradient over rows; then 2 and 3 are. Which event is the peak may change with the batch; taking the maximum last gets
that right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from itertools import count, takewhile
from typing import Protocol

from memdoctor.analysis import peak_of
from memdoctor.records import Examination, PhaseLine, Prediction, PredictionCheck, Scaling
from memdoctor.scaling.events import EventModel, Replayer, aligned
from memdoctor.scaling.pair import Pair

LARGEST_BATCH = 2**20  # beyond what anybody trains: where even this fits, nothing larger is looked at


def scaling_of(small: Examination, next_: Examination, target: Examination, replayed: Replayer) -> Scaling:
    """What two batch sizes one apart say of all others, beside the target's own probe."""
    pair = Pair(small, next_)
    model = model_of(pair, target, replayed)
    predict = cache(model.predict)  # a prediction is some replays, and the same batches are asked for again
    lines = pair.phase_lines()
    batch = target.workload.batch_size
    check = predict(batch)
    probed = peak_of(target)
    each = model.each(batch)
    return Scaling(
        method=model.method,
        from_batches=(small.workload.batch_size, next_.workload.batch_size),
        per_sample_bytes=each,
        fixed_bytes=check.allocated_bytes - batch * each,
        phases=lines,
        predicted=tuple(predict(size) for size in _batches(batch)),
        largest_batch_that_fits=_largest(model.fits),
        check=PredictionCheck(
            batch_size=batch,
            predicted_allocated_bytes=check.allocated_bytes,
            probed_allocated_bytes=probed.allocated_bytes,
            difference_bytes=check.allocated_bytes - probed.allocated_bytes,
            predicted_reserved_bytes=check.reserved_bytes,
            probed_reserved_bytes=probed.reserved_bytes,
        ),
    )


def predictions_at(pair: Pair, replayed: Replayer) -> tuple[Prediction, ...]:
    """What a pair says of the batches that the prediction for its larger one looks at, at the pair's own length."""
    model = model_of(pair, pair.next, replayed)
    return tuple(model.predict(batch) for batch in _batches(pair.next.workload.batch_size))


class Model(Protocol):
    """Says of any batch what a step takes, and whether it fits."""

    method: str

    def predict(self, batch: int) -> Prediction:
        """What a step at this batch takes."""
        ...

    def each(self, batch: int) -> int:
        """What a sample takes at the peak of this batch."""
        ...

    def fits(self, batch: int) -> bool:
        """Whether it fits the target's card."""
        ...


def model_of(pair: Pair, target: Examination, replayed: Replayer) -> Model:
    """Event by event where the pair's steps are the same sequence, else phase by phase."""
    return EventModel(pair, target, replayed) if aligned(pair.small, pair.next) else _PhaseModel(pair, target)


class _PhaseModel:
    """Every phase's peak is a line in the batch size; overhead is taken as what the target was probed to have."""

    method = "phase by phase"

    def __init__(self, pair: Pair, target: Examination) -> None:
        self._seq_length = target.workload.seq_length
        self._lines = pair.phase_lines()
        peak = peak_of(target)
        self._overhead = peak.reserved_bytes - peak.allocated_bytes
        self._limit = target.device.allocator_limit_bytes

    def predict(self, batch: int) -> Prediction:
        highest = max(self._lines, key=lambda line: _at(line, batch))
        return Prediction(
            batch_size=batch, seq_length=self._seq_length, allocated_bytes=_at(highest, batch), reserved_bytes=None,
            phase=highest.name, fits=self.fits(batch),
        )  # fmt: skip

    def each(self, batch: int) -> int:
        return max(self._lines, key=lambda line: _at(line, batch)).per_sample_bytes

    def fits(self, batch: int) -> bool:
        return max(_at(line, batch) for line in self._lines) + self._overhead <= self._limit


def _at(line: PhaseLine, batch: int) -> int:
    return line.fixed_bytes + batch * line.per_sample_bytes


def _batches(target: int) -> list[int]:
    """1, 2, 4 ... to four times the target, and the target."""
    powers = [2**power for power in range(LARGEST_BATCH.bit_length()) if 2**power <= max(4 * target, 8)]
    return sorted({*powers, target})


def _largest(fits: Callable[[int], bool]) -> int | None:
    """The largest batch that is predicted to fit; ``None`` where not even one does."""
    powers = takewhile(lambda batch: batch <= LARGEST_BATCH, (2**power for power in count()))
    too_large = next((batch for batch in powers if not fits(batch)), LARGEST_BATCH + 1)
    fitting = bisect_left(range(1, too_large), True, key=lambda batch: not fits(batch))
    return fitting or None
