"""MD201: eager attention keeps its S x S tensors."""

from __future__ import annotations

from memdoctor.records import Attention, Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the peak", 0.05, "of what is allocated at the peak",
    "ours: below a twentieth, no setting of attention is what decides whether a step fits",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """Score-shaped tensors, rows x heads x length x length, hold a share of the peak, and eager attention made them."""
    length = evidence.workload.seq_length
    if evidence.workload.attention is not Attention.EAGER:
        return None
    groups = [group for group in evidence.tensors if group.shape[-2:] == (length, length) and len(group.shape) == 4]
    held = sum(group.bytes for group in groups)
    if held < LEAST_SHARE.value * evidence.peak.allocated_bytes:
        return None
    largest = max(groups, key=lambda group: group.bytes)
    shape = "x".join(map(str, largest.shape))
    activations = evidence.most_held[Category.ACTIVATIONS]
    return RULE.finding(
        "warning",
        f"at the peak {sum(group.count for group in groups)} tensors of the shape of attention scores hold "
        f"{format_bytes(held)} (the largest kind: {largest.count} x {shape} {largest.dtype} = "
        f"{format_bytes(largest.bytes)}); they grow with the square of the length",
        {"held_bytes": held, "activations_bytes": activations, "seq_length": length},
        at_stake_bytes=held,
    )


RULE = Rule(
    id="MD201",
    title="Eager attention keeps its S x S tensors",
    why=(
        "Eager attention writes scores, probabilities and their dropout as tensors of batch x heads x length x length, "
        "and backward needs them. Fused attention keeps one number a row instead."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(Remedy('attn_implementation="sdpa"', "none", "attention"),),
    check=check,
)
