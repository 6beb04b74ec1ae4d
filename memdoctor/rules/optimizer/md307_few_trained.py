"""MD307: few parameters are trained, and activations hold the peak all the same."""

from __future__ import annotations

from memdoctor.matrix import UPDATES_IN_BACKWARD
from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.lever_effects import probed_effects, still_open
from memdoctor.rules.precision.md403_not_in_hardware import FP16_ARITHMETIC
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.static_state import parameters_of, trained_of
from memdoctor.units import format_bytes

MOST_TRAINED = Threshold(
    "share that is trained", 0.5, "of the parameters",
    "ours: from one half on, gradients and state are still most of what full training keeps",
)  # fmt: skip
LEAST_SHARE = Threshold(
    "share of the peak", 0.5, "of what is allocated at the peak", "ours: activations are the largest part then"
)


def check(evidence: Evidence) -> Finding | None:
    """Freezing or LoRA leaves few gradients, and what is kept for backward is most of the peak."""
    name = evidence.workload.optimizer
    if name in UPDATES_IN_BACKWARD or name.endswith("_layerwise"):  # gradients come and go one by one
        return None
    total, trained = parameters_of(evidence), trained_of(evidence)
    activations, peak = evidence.breakdown.activations, evidence.peak.allocated_bytes
    if not 0 < trained < MOST_TRAINED.value * total or activations < LEAST_SHARE.value * peak:
        return None
    changes = evidence.most_held[Category.GRADIENTS] + evidence.most_held[Category.OPTIMIZER_STATE]
    return RULE.finding(
        "info" if evidence.fits else "warning",
        f"{trained:,} of {total:,} parameters are trained, so gradients and optimizer state hold only "
        f"{format_bytes(changes)}; activations hold {format_bytes(activations)} of the {format_bytes(peak)} at the "
        f"peak, and training fewer parameters leaves them{probed_effects(evidence, 'checkpointing', 'batch', 'fp16')}",
        {"trained_parameters": trained, "parameters": total, "activations_bytes": activations},
        at_stake_bytes=activations,
        remedies=still_open(evidence, RULE.remedies),
    )


RULE = Rule(
    id="MD307",
    title="Few parameters are trained, yet activations hold the peak",
    why=(
        "Freezing and LoRA save gradients and optimizer state. Backward still passes through every layer above the "
        "first that is trained, and needs what those layers keep: only layers below all that is trained keep nothing."
    ),
    thresholds=(MOST_TRAINED, LEAST_SHARE),
    remedies=(
        Remedy("gradient checkpointing", "time", "checkpointing"),
        Remedy("a smaller batch with accumulation", "time", "batch", accumulates=True),
        Remedy("fp16 or bf16", "numerics", "fp16", since=FP16_ARITHMETIC.value),
        Remedy("freeze from the embeddings upwards, without gaps", "task"),
    ),
    check=check,
)
