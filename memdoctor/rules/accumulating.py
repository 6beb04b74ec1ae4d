"""Whether gradient accumulation can make up for a smaller batch here: what probes of both together showed."""

from __future__ import annotations

from dataclasses import dataclass

from memdoctor.analysis import peak_of
from memdoctor.matrix import UPDATES_IN_BACKWARD
from memdoctor.records import Change, Completed, Examination, Workload
from memdoctor.rules.evidence import Evidence
from memdoctor.units import format_bytes

_SPLIT = {"batch_size", "gradient_accumulation_steps"}


@dataclass(frozen=True, slots=True)
class Split:
    """Several micro-batches of the target's samples, probed or reckoned, and what they reserve.

    ``persists_bytes`` is what the gradients that persist were seen to add, where it was reckoned; else 0.
    """

    batch_size: int
    steps: int
    reserved_bytes: int
    persists_bytes: int = 0

    def __str__(self) -> str:
        """``batch 1 x 4 micro-batches takes 180.00 MiB and does not fit: gradients persist ..``."""
        what = f"batch {self.batch_size} x {self.steps} micro-batches"
        if self.persists_bytes:
            return (
                f"{what} is reckoned to take {format_bytes(self.reserved_bytes)} and not to fit: the gradients that "
                f"persist from one to the next add {format_bytes(self.persists_bytes)}"
            )
        return (
            f"{what} takes {format_bytes(self.reserved_bytes)} and does not fit: gradients persist from one to the next"
        )


def never_accumulates(workload: Workload) -> str:
    """Why micro-batches make up no effective batch with this optimizer; empty where they do."""
    if workload.optimizer not in UPDATES_IN_BACKWARD:
        return ""
    return f"{workload.optimizer} updates the weights in every backward pass, so micro-batches make up no larger batch"


def stops(evidence: Evidence, batch: int) -> Split | None:
    """A split that shows that micro-batches of ``batch`` samples do not fit; ``None`` where nothing shows it.

    Gradients persist from the second micro-batch on, and more of them add their inputs alone: any number shows the
    same. A smaller batch that does not fit so shows it as well; a larger one that does shows that this one fits. Where
    neither was probed, it is reckoned: what this batch takes by itself, on the line from batch 1 to the target where it
    was not probed, and on top what accumulation costs at the target. That is its most: where the peak is in the
    optimizer step, gradients are there anyway.
    """
    splits = sorted(_splits(evidence), key=lambda pair: pair[0])
    if any(size >= batch and isinstance(found.outcome, Completed) for size, found in splits):
        return None
    failed = [found for size, found in splits if size <= batch and not isinstance(found.outcome, Completed)]
    return _probed(failed[-1]) if failed else _reckoned(evidence, batch)


def _splits(evidence: Evidence) -> list[tuple[int, Examination]]:
    """What was probed with several micro-batches and nothing else changed, with the size of one."""
    made = [(_of(evidence, change), found) for change, found in evidence.probes if set(change) <= _SPLIT]
    return [(batch, found) for (batch, steps), found in made if steps > 1]


def _of(evidence: Evidence, change: Change) -> tuple[int, int]:
    workload = evidence.workload
    batch = change.get("batch_size", workload.batch_size)
    steps = change.get("gradient_accumulation_steps", workload.gradient_accumulation_steps)
    assert isinstance(batch, int)
    assert isinstance(steps, int)
    return batch, steps


def _probed(found: Examination) -> Split:
    workload = found.workload
    return Split(workload.batch_size, workload.gradient_accumulation_steps, peak_of(found).reserved_bytes)


def _reckoned(evidence: Evidence, batch: int) -> Split | None:
    lever, alone = evidence.lever("accumulation"), _alone(evidence, batch)
    if lever is None or lever.status != "probed" or not lever.saves_bytes or alone is None:
        return None
    takes = alone - lever.saves_bytes  # which it costs, where it is negative
    if takes <= evidence.limit_bytes:
        return None
    return Split(batch, -(-evidence.workload.batch_size // batch), takes, -lever.saves_bytes)


def _alone(evidence: Evidence, batch: int) -> int | None:
    """What a batch reserves without accumulation."""
    there, one = evidence.changed({"batch_size": batch}), evidence.changed({"batch_size": 1})
    if there is not None:
        return peak_of(there).reserved_bytes
    if one is None or evidence.workload.batch_size == 1:
        return None
    least, most = peak_of(one).reserved_bytes, evidence.peak.reserved_bytes
    return least + (most - least) * (batch - 1) // (evidence.workload.batch_size - 1)
