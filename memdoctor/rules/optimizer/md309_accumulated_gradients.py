"""MD309: accumulation keeps all gradients beside the activations."""

from __future__ import annotations

from memdoctor.records import Category, Finding, PhaseName
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.lever_effects import probed_effects
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.static_state import arithmetic
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the peak", 0.05, "of what is allocated at the peak",
    "ours: below a twentieth, gradients that wait are not what decides whether a step fits",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """With accumulation all gradients are there at a peak in forward or backward."""
    steps, peak = evidence.workload.gradient_accumulation_steps, evidence.peak
    if steps == 1 or peak.phase not in (PhaseName.FORWARD, PhaseName.BACKWARD):
        return None
    waiting, activations = evidence.breakdown.gradients, evidence.breakdown.activations
    all_there = waiting == evidence.most_held[Category.GRADIENTS]
    if not all_there or not activations or waiting < LEAST_SHARE.value * peak.allocated_bytes:
        return None
    return RULE.finding(
        "info" if evidence.fits else "warning",
        f"from the second of {steps} micro-batches on all gradients, {arithmetic(evidence, Category.GRADIENTS)}, wait "
        f"beside the activations, {format_bytes(activations)} of a micro-batch of {evidence.workload.batch_size}: "
        f"accumulation makes the peak no lower than a micro-batch's own{probed_effects(evidence, 'accumulation')}",
        {"waiting_bytes": waiting, "activations_bytes": activations, "gradient_accumulation_steps": steps},
        at_stake_bytes=waiting,
    )


RULE = Rule(
    id="MD309",
    title="Accumulation keeps all gradients beside the activations",
    why=(
        "Memory depends on the per-device batch, not on how many of them are added up. From the second micro-batch on, "
        "gradients of the first are there while activations are at their most, which without accumulation they are "
        "not. Accumulation makes up for a smaller batch; it saves nothing by itself."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("no accumulation, where the batch that is wanted fits at once", "none", "accumulation"),
        Remedy("a smaller per-device batch, with more steps", "time", "batch"),
    ),
    check=check,
)
