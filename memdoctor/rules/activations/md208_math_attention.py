"""MD208: fused attention was asked for, and attention runs unfused all the same."""

from __future__ import annotations

from memdoctor.records import Attention, Dtype, Finding, Precision
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.precision.md403_not_in_hardware import BF16_ARITHMETIC, FP16_ARITHMETIC
from memdoctor.rules.reading import left, product
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "score-shaped tensors", 0.05, "of what is allocated at the peak",
    "ours: as for eager attention, MD201",
)  # fmt: skip
MATH = "math"  # of torch.nn.attention.SDPBackend, as provenance says it


def check(evidence: Evidence) -> Finding | None:
    """SDPA chose the math kernel; says what scores that leaves at the peak."""
    workload, provenance = evidence.workload, evidence.examination.provenance
    if workload.attention is not Attention.SDPA or MATH not in provenance.attention_kernels:
        return None
    length = workload.seq_length
    groups = [group for group in evidence.tensors if group.shape[-2:] == (length, length)]
    held = sum(group.bytes for group in groups)
    largest = f" (the largest kind: {product(max(groups, key=lambda group: group.bytes))})" if groups else ""
    return RULE.finding(
        "warning" if held >= LEAST_SHARE.value * evidence.peak.allocated_bytes else "info",
        f"scaled_dot_product_attention ran as {', '.join(provenance.attention_kernels)} for {_kind(evidence)} on "
        f"compute capability {evidence.device.compute_capability}; tensors of {length}x{length} hold "
        f"{format_bytes(held)} at the peak{largest}",
        {"held_bytes": held, "kernels": ", ".join(provenance.attention_kernels)},
        at_stake_bytes=held,
        remedies=left(evidence, _others(evidence)),
    )


def _kind(evidence: Evidence) -> str:
    workload = evidence.workload
    number = workload.precision.value if workload.precision.value != "fp32" else workload.dtype.value
    return f"{number}, {'with' if workload.padded else 'without'} padding"


def _others(evidence: Evidence) -> tuple[Remedy, ...]:
    """The remedies without the number format that is in use; fp16 is told in place of bf16 alone."""
    workload = evidence.workload
    in_bf16 = workload.precision is Precision.BF16 or workload.dtype is Dtype.BFLOAT16
    in_fp32 = workload.precision is Precision.FP32 and workload.dtype is Dtype.FLOAT32
    return (*(_FP16,) * in_bf16, *(_FP32,) * (not in_fp32), _CHECKPOINTED)


_FP16 = Remedy(
    "fp16 in place of bf16, on cards before compute capability 8.0", "numerics", "fp16",
    since=FP16_ARITHMETIC.value, before=BF16_ARITHMETIC.value,
)  # fmt: skip
_FP32 = Remedy("fp32, where memory-efficient attention takes any card from 5.0 on", "numerics", since=5.0)
_CHECKPOINTED = Remedy("activation checkpointing, which keeps one layer's scores at a time", "time", "checkpointing")

RULE = Rule(
    id="MD208",
    title="Fused attention falls back to the math kernel",
    why=(
        'attn_implementation="sdpa" leaves the choice to PyTorch. Where no fused kernel takes the type, the head '
        "size or the card, it runs operator by operator, and keeps scores as eager attention does: bf16 before compute "
        "capability 8.0 does, and computes in fp32 at that."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(_FP16, _FP32, _CHECKPOINTED),
    check=check,
)
