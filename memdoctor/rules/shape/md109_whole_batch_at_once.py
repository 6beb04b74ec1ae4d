"""MD109: the whole effective batch is in one step, where a part of it would fit."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.records import Completed, Finding
from memdoctor.rules.accumulating import never_accumulates, stops
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import varied
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold
from memdoctor.rules.shape.md102_batch_too_large import largest_batch
from memdoctor.units import format_bytes

LEAST_BATCH = Threshold(
    "per-device batch", 2, "samples", "a batch of one sample cannot be divided",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """Without accumulation the target does not fit, and a divisor of its batch does: probed, else predicted.

    One that is known not to fit several times over is none: gradients persist from one micro-batch to the next.
    """
    workload = evidence.workload
    batch, gpus = workload.batch_size, workload.world_size
    if evidence.fits or workload.gradient_accumulation_steps > 1 or batch < LEAST_BATCH.value:
        return None
    if never_accumulates(workload):
        return None
    smaller = varied(evidence, "batch_size")
    probed = {size for size, found in smaller.items() if isinstance(found.outcome, Completed)}
    largest = largest_batch(evidence) or 0
    fitting = [size for size in range(1, batch) if batch % size == 0 and (size in probed or size <= largest)]
    divisors = [size for size in fitting if stops(evidence, size) is None]
    if not divisors:
        return None
    part = max(divisors)
    stopped = stops(evidence, max(fitting))
    larger = f"; {stopped}" if stopped else ""
    known = f"probed, {format_bytes(peak_of(smaller[part]).reserved_bytes)}" if part in probed else "predicted"
    return RULE.finding(
        "warning",
        f"batch {batch} with accumulation 1 puts the whole effective batch of {batch * gpus} on the card at once; "
        f"{part} fits ({known}), and {part} x {batch // part} x {gpus} GPU{'s' if gpus > 1 else ''} is the same "
        f"effective batch{larger}",
        {"batch_size": batch, "batch_size_that_fits": part, "gradient_accumulation_steps": batch // part},
        at_stake_bytes=max(evidence.peak.reserved_bytes - evidence.limit_bytes, 0),
    )


def _missing(evidence: Evidence) -> str | None:
    if evidence.fits or evidence.scaling is not None or varied(evidence, "batch_size"):
        return None
    return "no smaller batch was probed or predicted"


RULE = Rule(
    id="MD109",
    title="The whole effective batch is in one step",
    why=(
        "A recipe's batch size is usually the effective one: per-device batch x accumulation x GPUs. Typed in as the "
        "per-device batch, all of it has to fit at once."
    ),
    needs=(Need("where the target does not fit, a smaller batch, probed or predicted", _missing),),
    thresholds=(LEAST_BATCH,),
    remedies=(Remedy("the per-device batch divided, and the accumulation multiplied by it", "time", "accumulation"),),
    check=check,
)
