"""MD211: few parameters are trained, and the activations are all there."""

from __future__ import annotations

from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import NEARLY_FULL, left, percent, presses
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "activations", 0.5, "of what is allocated at the peak", "ours: the largest part",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """LoRA or frozen parts have cut gradients and state; memory is short all the same, and activations are the peak."""
    workload = evidence.workload
    if not (workload.lora_rank or workload.freeze) or not presses(evidence):
        return None
    activations, peak = evidence.breakdown.activations, evidence.peak.allocated_bytes
    if activations < LEAST_SHARE.value * peak:
        return None
    held = evidence.most_held
    return RULE.finding(
        "warning",
        f"gradients are {format_bytes(held[Category.GRADIENTS])} and optimizer state "
        f"{format_bytes(held[Category.OPTIMIZER_STATE])} beside {format_bytes(held[Category.PARAMETERS])} of "
        f"parameters, but activations {format_bytes(activations)}, {percent(activations, peak)} of the peak: backward "
        "still runs through every layer behind the first that is trained",
        {
            "activations_bytes": activations, "gradients_bytes": held[Category.GRADIENTS],
            "optimizer_state_bytes": held[Category.OPTIMIZER_STATE],
        },
        at_stake_bytes=activations,
        remedies=left(evidence, RULE.remedies),
    )  # fmt: skip


RULE = Rule(
    id="MD211",
    title="Few parameters are trained, and the activations are all there",
    why=(
        "LoRA and frozen parameters save gradients and optimizer state. To reach the first trained parameter, backward "
        "needs the activations of everything behind it: with LoRA in every layer that is the whole model."
    ),
    thresholds=(LEAST_SHARE, NEARLY_FULL),
    remedies=(
        Remedy("activation checkpointing", "time", "checkpointing"),
        Remedy("a smaller per-device batch with more gradient accumulation", "time", "batch"),
        Remedy("frozen layers from the embeddings on, which keep nothing", "task", "freezing"),
    ),
    check=check,
)
