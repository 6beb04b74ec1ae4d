"""MD703: what is sharded is not what holds the peak."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.lever_effects import probed_effects, still_open
from memdoctor.rules.needs import SEVERAL_GPUS
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.several_gpus.strategies import NOT_PROBED, SHARDED, sharded_bytes, words
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the peak", 0.5, "of what one GPU has allocated at the peak", "ours: activations are the largest part then"
)


def check(evidence: Evidence) -> Finding | None:
    """Activations, which no stage shards, hold most of the peak."""
    workload, parts, peak = evidence.workload, evidence.breakdown, evidence.peak.allocated_bytes
    if workload.strategy not in SHARDED or workload.world_size == 1:
        return None
    if parts.activations < LEAST_SHARE.value * peak:
        return None
    sharded, gpus = sharded_bytes(workload.strategy, parts), workload.world_size
    saved = sharded - -(-sharded // gpus)
    return RULE.finding(
        "info" if evidence.fits else "warning",
        f"{workload.strategy} on {gpus} GPUs shards {words(workload.strategy)}, {format_bytes(sharded)} of the "
        f"{format_bytes(peak)} at the peak, and saves at most {gpus - 1}/{gpus} of it, {format_bytes(saved)}; "
        f"activations hold {format_bytes(parts.activations)}, which every GPU keeps "
        f"({NOT_PROBED}){probed_effects(evidence, 'checkpointing', 'batch')}",
        {"sharded_bytes": sharded, "saves_at_most_bytes": saved, "activations_bytes": parts.activations},
        at_stake_bytes=parts.activations,
        remedies=still_open(evidence, RULE.remedies),
    )


RULE = Rule(
    id="MD703",
    title="What is sharded is not what holds the peak",
    why=(
        "ZeRO and FSDP divide optimizer state, gradients and parameters among GPUs. Activations belong to each GPU's "
        "own batch: no stage makes them smaller, and the activation_checkpointing block of a DeepSpeed file only "
        "configures what the model has to call itself."
    ),
    needs=(SEVERAL_GPUS,),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("gradient checkpointing", "time", "checkpointing"),
        Remedy("a smaller per-device batch; there are more GPUs to make up for it", "time", "batch"),
    ),
    check=check,
)
