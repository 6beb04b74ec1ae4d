"""MD701: DDP's buckets are a second copy of the gradients."""

from __future__ import annotations

from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import SEVERAL_GPUS
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.several_gpus.strategies import NOT_PROBED
from memdoctor.rules.static_state import arithmetic
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the peak", 0.05, "of what one GPU has allocated at the peak",
    "ours: below a twentieth, buckets are not what decides whether a step fits",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """With DDP, gradients as large as a share of the peak are copied to buckets."""
    workload = evidence.workload
    if workload.strategy != "ddp" or workload.world_size == 1:
        return None
    gradients, peak = evidence.most_held[Category.GRADIENTS], evidence.peak.allocated_bytes
    if gradients == 0 or gradients < LEAST_SHARE.value * peak:
        return None
    return RULE.finding(
        "warning",
        f"each of the {workload.world_size} GPUs holds buckets as large as all gradients, "
        f"{arithmetic(evidence, Category.GRADIENTS)}, beside the {format_bytes(peak)} of one GPU's step ({NOT_PROBED})",
        {"bucket_bytes": gradients, "peak_allocated_bytes": peak, "world_size": workload.world_size},
        at_stake_bytes=gradients,
    )


RULE = Rule(
    id="MD701",
    title="DDP's buckets are a second copy of the gradients",
    why=(
        "DistributedDataParallel copies gradients into flat buckets to reduce them, and keeps the buckets "
        "(reducer.cpp, initialize_buckets). Unless gradients are views into them, that is 4 bytes more for every fp32 "
        "parameter."
    ),
    needs=(SEVERAL_GPUS,),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("gradient_as_bucket_view=True (accelerate: DistributedDataParallelKwargs), not probed", "none"),
        Remedy("train fewer parameters", "task", "freezing"),
    ),
    check=check,
)
