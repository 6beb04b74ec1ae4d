"""What fits, by batch and length: the map of predictions, with the target's own probe in its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memdoctor.records import Diagnosis, Prediction


@dataclass(frozen=True, slots=True)
class Cell:
    """One batch at one length: what was probed, else what is predicted; ``last`` before the fits line.

    ``current`` is the target.
    """

    prediction: Prediction
    probed: bool
    current: bool
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
    probed = dict(_probed(diagnosis))
    known |= probed
    batches = tuple(sorted({batch for _, batch in known}))
    lengths = sorted({length for length, _ in known})

    def cell(length: int, batch: int) -> Cell | None:
        prediction = known.get((length, batch))
        if prediction is None:
            return None
        following = [known[length, other] for other in batches if other > batch and (length, other) in known]
        last = prediction.fits and bool(following) and not following[0].fits
        return Cell(prediction, (length, batch) in probed, (length, batch) == target, last)

    return BatchMap(batches, tuple((n, tuple(cell(n, batch) for batch in batches)) for n in lengths))


def _probed(diagnosis: Diagnosis) -> Iterator[tuple[tuple[int, int], Prediction]]:
    """The target, and the toggles that change nothing but its batch or its length."""
    workload = diagnosis.workload
    ours = {"batch_size": workload.batch_size, "seq_length": workload.seq_length}
    mode = diagnosis.provenance.mode
    toggles = ((dict(one.change), one.peak, one.fits) for one in diagnosis.toggles if one.mode == mode)
    for change, peak, fits in (*toggles, ({}, diagnosis.peak, diagnosis.fits)):
        if not change.keys() <= ours.keys():
            continue
        made = {name: int(str(change.get(name, value))) for name, value in ours.items()}
        yield (made["seq_length"], made["batch_size"]), Prediction(
            batch_size=made["batch_size"], seq_length=made["seq_length"], allocated_bytes=peak.allocated_bytes,
            reserved_bytes=peak.reserved_bytes, phase=peak.phase, fits=fits,
        )  # fmt: skip
