"""MD102: one sample fits, the batch does not."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.records import Completed, Finding
from memdoctor.rules.accumulating import stops
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import BATCH_OF_ONE
from memdoctor.rules.reading import at, left, varied
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

MOST_OFF = Threshold(
    "distance from the line", 0.01, "of the predicted peak",
    "ours: a peak that is further from the line of two small batches has other tensors in it than theirs",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """The target does not fit, and with batch 1 it does."""
    batch = evidence.workload.batch_size
    one = varied(evidence, "batch_size").get(1)
    if evidence.fits or one is None or not isinstance(one.outcome, Completed):
        return None
    too_much = evidence.peak.reserved_bytes - evidence.limit_bytes
    return RULE.finding(
        "error",
        f"batch {batch} needs {format_bytes(evidence.peak.reserved_bytes)} of the {format_bytes(evidence.limit_bytes)} "
        f"that PyTorch can reserve, batch 1 fits with {at(one)}{_largest(evidence)}{_stopped(evidence)}",
        {
            "batch_size": batch, "reserved_bytes": evidence.peak.reserved_bytes, "limit_bytes": evidence.limit_bytes,
            "batch_1_reserved_bytes": peak_of(one).reserved_bytes,
            **({"largest_batch_that_fits": largest} if (largest := largest_batch(evidence)) else {}),
        },
        at_stake_bytes=max(too_much, 0),
        remedies=left(evidence, RULE.remedies),
    )  # fmt: skip


def largest_batch(evidence: Evidence) -> int | None:
    """The largest batch that is predicted to fit, where that was predicted."""
    return evidence.scaling.largest_batch_that_fits if evidence.scaling else None


def _stopped(evidence: Evidence) -> str:
    """Why accumulation does not make up for batch 1, where it does not."""
    stopped = stops(evidence, 1)
    return f"; {stopped}" if stopped else ""


def _largest(evidence: Evidence) -> str:
    largest, scaling = largest_batch(evidence), evidence.scaling
    if scaling is None or largest is None:
        return ""
    batch, sample, fixed = evidence.workload.batch_size, scaling.per_sample_bytes, scaling.fixed_bytes
    predicted = scaling.check.predicted_allocated_bytes
    off = abs(fixed + batch * sample - predicted) > MOST_OFF.value * predicted  # by then the peak is another one
    parts = "" if off else f": a sample takes {format_bytes(sample)}, all else {format_bytes(fixed)}"
    return f"; the largest that fits is {largest} (predicted){parts}"


RULE = Rule(
    id="MD102",
    title="The batch is what does not fit",
    why=(
        "Activations grow with every sample, parameters and optimizer state do not. Where one sample fits and the "
        "batch does not, all that is needed is fewer samples at a time; the effective batch need not change."
    ),
    needs=(BATCH_OF_ONE,),
    thresholds=(MOST_OFF,),
    remedies=(
        Remedy(
            "the largest per-device batch that fits, and gradient accumulation for the rest",
            "time",
            "batch",
            accumulates=True,
        ),
        Remedy("activation checkpointing", "time", "checkpointing"),
    ),
    check=check,
)
