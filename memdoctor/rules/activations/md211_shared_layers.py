"""MD211: layers share their weights, and each keeps activations of its own."""

from __future__ import annotations

from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import MODEL_CONFIG
from memdoctor.rules.precision.md403_not_in_hardware import FP16_ARITHMETIC
from memdoctor.rules.reading import NEARLY_FULL, left, percent, presses, product
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "activations", 0.5, "of what is allocated at the peak", "ours: the largest part",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """ALBERT's config has fewer groups of weights than layers, memory is short, and activations are the peak."""
    layers, groups = evidence.config.get("num_hidden_layers"), evidence.config.get("num_hidden_groups")
    if not (isinstance(layers, int) and isinstance(groups, int) and groups < layers) or not presses(evidence):
        return None
    activations, peak = evidence.breakdown.activations, evidence.peak.allocated_bytes
    if activations < LEAST_SHARE.value * peak:
        return None
    largest = max(
        (group for group in evidence.tensors if group.category is Category.ACTIVATIONS), key=lambda group: group.bytes
    )
    width = evidence.config.get("hidden_size")
    return RULE.finding(
        "warning",
        f"{layers} layers share {groups} set{'s' if groups > 1 else ''} of weights, "
        f"{format_bytes(evidence.most_held[Category.PARAMETERS])} in all, but keep activations each: "
        f"{format_bytes(activations)}, {percent(activations, peak)} of the peak, at a hidden size of {width} (the "
        f"largest kind: {product(largest)})",
        {"activations_bytes": activations, "parameters_bytes": evidence.most_held[Category.PARAMETERS]},
        at_stake_bytes=activations,
        remedies=left(evidence, RULE.remedies),
    )


RULE = Rule(
    id="MD211",
    title="Layers share their weights, and keep activations each",
    why=(
        "ALBERT's checkpoints are small because all layers share one set of weights. Every layer still runs, and keeps "
        "what its backward needs: its activations are those of a model of its depth and width, and xxlarge is four "
        "times as wide as large."
    ),
    needs=(MODEL_CONFIG,),
    thresholds=(LEAST_SHARE, NEARLY_FULL),
    remedies=(
        Remedy("a smaller per-device batch with more gradient accumulation", "time", "batch", accumulates=True),
        Remedy("mixed precision, which halves most activations", "numerics", "fp16", since=FP16_ARITHMETIC.value),
        Remedy("a narrower checkpoint: large instead of xxlarge", "task"),
        Remedy("a shorter sequence", "task", "length"),
    ),
    check=check,
)
