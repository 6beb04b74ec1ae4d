"""MD105: rows are padded, and every padded token costs what a real one does."""

from __future__ import annotations

from memdoctor.records import Attention, Dtype, Finding, Precision
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import presses
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

FLASH_CAPABILITY = Threshold(
    "compute capability", 8.0, "from which flash attention runs, in 16 bits and without a mask",
    "PyTorch, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_flash_attention_hardware_support and "
    "check_for_attn_mask",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """The batch has padding: what a token costs, and whether the mask keeps flash attention away."""
    workload = evidence.workload
    if not workload.padded:
        return None
    activations, tokens = evidence.breakdown.activations, workload.batch_size * workload.seq_length
    masked = (
        f"; with a mask attention runs as {', '.join(evidence.examination.provenance.attention_kernels)}, since flash "
        "attention takes none"
        if _mask_decides(evidence)
        else ""
    )
    return RULE.finding(
        "warning" if presses(evidence) else "info",
        f"{workload.batch_size} x {workload.seq_length} tokens hold {format_bytes(activations)} of activations at the "
        f"peak, {format_bytes(activations // tokens)} a token, padding or not: rows padded to half their length pay "
        f"{format_bytes(activations // 2)} for nothing{masked}",
        {"activations_bytes": activations, "tokens": tokens, "mask_decides_kernel": _mask_decides(evidence)},
        at_stake_bytes=0,  # how much of the batch is padding is not known
    )


def _mask_decides(evidence: Evidence) -> bool:
    workload = evidence.workload
    half = workload.precision is not Precision.FP32 or workload.dtype is not Dtype.FLOAT32
    capable = evidence.device.capability >= (int(FLASH_CAPABILITY.value), 0)
    kernels = set(evidence.examination.provenance.attention_kernels)
    return half and capable and workload.attention is Attention.SDPA and not {"flash", "cudnn"} & kernels


RULE = Rule(
    id="MD105",
    title="Rows are padded, and padding costs what tokens do",
    why=(
        "The encoder computes and keeps every token of the rectangle, padding too. A batch with padding also carries "
        "a mask, and attention with a mask cannot use the flash kernel."
    ),
    thresholds=(FLASH_CAPABILITY,),
    remedies=(
        Remedy("DataCollatorWithPadding, which pads to the longest of the batch", "none"),
        Remedy(
            'samples of like length together, which orders them otherwise: train_sampling_strategy="group_by_length"',
            "numerics",
        ),
    ),
    check=check,
)
