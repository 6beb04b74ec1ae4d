"""MD705: the step does not fit one GPU, and DDP gives every GPU all of it."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import SEVERAL_GPUS
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.several_gpus.strategies import NOT_PROBED, sharded_bytes
from memdoctor.rules.static_state import static_in_words
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the peak", 0.5, "of what one GPU has allocated at the peak",
    "ours: static state, which DDP copies and sharding divides, is the largest part then",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """With DDP, static state is most of a peak that does not fit."""
    workload, parts, peak = evidence.workload, evidence.breakdown, evidence.peak.allocated_bytes
    static = sharded_bytes("fsdp", parts)
    if workload.strategy != "ddp" or workload.world_size == 1 or evidence.fits or static < LEAST_SHARE.value * peak:
        return None
    gpus = workload.world_size
    return RULE.finding(
        "warning",
        f"each of the {gpus} GPUs holds all of it: {static_in_words(evidence)}, {format_bytes(static)} of the "
        f"{format_bytes(peak)} at the peak. Divided by {gpus} it would be {format_bytes(-(-static // gpus))} "
        f"({NOT_PROBED})",
        {"static_bytes": static, "sharded_bytes": -(-static // gpus), "world_size": gpus},
        at_stake_bytes=static,
    )


RULE = Rule(
    id="MD705",
    title="DDP gives every GPU the whole static state",
    why=(
        "DDP divides the batch among GPUs and nothing else: each holds all parameters, gradients and optimizer state. "
        "What does not fit one GPU at batch 1 does not fit eight of them."
    ),
    needs=(SEVERAL_GPUS,),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("ZeRO-2 or FSDP, which divide it, not probed", "time", "sharding"),
        Remedy("adamw_bnb_8bit or adafactor", "numerics", "8-bit optimizer"),
    ),
    check=check,
)
