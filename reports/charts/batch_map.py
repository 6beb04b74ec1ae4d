"""What fits, by batch and length: the map of predictions, with the target's own probe in its place."""

from __future__ import annotations

from dataclasses import dataclass

from memdoctor.records import Diagnosis, Prediction


@dataclass(frozen=True, slots=True)
class Cell:
    """One batch at one length: what is predicted, or for the target what was probed; ``last`` before the fits line."""

    prediction: Prediction
    probed: bool
    last: bool


@dataclass(frozen=True, slots=True)
class BatchMap:
    """Cells by length, the shortest first, each row as long as there are batches; ``None`` where nothing is known."""

    batches: tuple[int, ...]
    rows: tuple[tuple[int, tuple[Cell | None, ...]], ...]


def batch_map_of(diagnosis: Diagnosis) -> BatchMap | None:
    """The map; ``None`` where nothing was predicted."""
    if diagnosis.scaling is None:
        return None
    known = {(item.seq_length, item.batch_size): item for item in (*diagnosis.lengths, *diagnosis.scaling.predicted)}
    target = (diagnosis.workload.seq_length, diagnosis.workload.batch_size)
    known[target] = _probed(diagnosis)
    batches = tuple(sorted({batch for _, batch in known}))
    lengths = sorted({length for length, _ in known})

    def cell(length: int, batch: int) -> Cell | None:
        prediction = known.get((length, batch))
        if prediction is None:
            return None
        following = [known[length, other] for other in batches if other > batch and (length, other) in known]
        last = prediction.fits and bool(following) and not following[0].fits
        return Cell(prediction, (length, batch) == target, last)

    return BatchMap(batches, tuple((n, tuple(cell(n, batch) for batch in batches)) for n in lengths))


def _probed(diagnosis: Diagnosis) -> Prediction:
    peak, workload = diagnosis.peak, diagnosis.workload
    return Prediction(
        batch_size=workload.batch_size, seq_length=workload.seq_length, allocated_bytes=peak.allocated_bytes,
        reserved_bytes=peak.reserved_bytes, phase=peak.phase, fits=diagnosis.fits,
    )  # fmt: skip
