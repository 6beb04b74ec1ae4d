"""MD403: the card does not compute in the type that was asked for."""

from __future__ import annotations

from memdoctor.records import Dtype, Finding, Precision, Severity, Workload
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import capability, possible, presses
from memdoctor.rules.rule import Remedy, Rule, Threshold

_GUIDE = "NVIDIA, CUDA C++ Programming Guide, arithmetic instructions by compute capability"
FP16_ARITHMETIC = Threshold("compute capability", 5.3, "from which a card computes in fp16", _GUIDE)
FP16_TENSOR_CORES = Threshold("compute capability", 7.0, "from which a card has tensor cores for fp16", _GUIDE)
BF16_ARITHMETIC = Threshold("compute capability", 8.0, "from which a card computes in bf16", _GUIDE)


def check(evidence: Evidence) -> Finding | None:
    """bf16 or fp16, of autocast or of the weights, on a card that is older than it.

    Emulated bf16 is always a warning, since it is slower than fp32; fp16 that saves no time does no harm either, and is
    one only where memory is short and it is counted on.
    """
    workload, device = evidence.workload, evidence.device
    said = _said(evidence)
    if said is None:
        return None
    severity, what = said
    return RULE.finding(
        severity,
        f"{device.name} has compute capability {device.compute_capability}: {what}",
        {
            "precision": workload.precision.value, "dtype": workload.dtype.value,
            "compute_capability": device.compute_capability,
        },
        remedies=possible(evidence, RULE.remedies[not _in_bf16(workload) :]),
    )  # fmt: skip


def _said(evidence: Evidence) -> tuple[Severity, str] | None:
    workload, device = evidence.workload, evidence.device
    if device.is_cpu:
        return None
    version = capability(evidence)
    if _in_bf16(workload) and version < BF16_ARITHMETIC.value:
        return "warning", (
            f"bf16 comes with {BF16_ARITHMETIC.value}, and before it PyTorch emulates it: slower than fp32, and no "
            "fused attention takes it"
        )
    if workload.precision is Precision.FP16 or workload.dtype is Dtype.FLOAT16:
        if version < FP16_ARITHMETIC.value:
            severity: Severity = "warning" if presses(evidence) else "info"
            return severity, f"fp16 arithmetic comes with {FP16_ARITHMETIC.value}: fp16 saves memory and no time"
        if version < FP16_TENSOR_CORES.value:
            return "info", (
                f"tensor cores come with {FP16_TENSOR_CORES.value}: fp16 saves memory and little or no time"
            )
    return None


def _in_bf16(workload: Workload) -> bool:
    return workload.precision is Precision.BF16 or workload.dtype is Dtype.BFLOAT16


RULE = Rule(
    id="MD403",
    title="The card does not compute in this precision",
    why=(
        "PyTorch accepts bf16 and fp16 on cards without arithmetic for them, and converts. The memory is that of "
        "16 bits, the time is not: a lever that saves less than it seems to."
    ),
    thresholds=(FP16_ARITHMETIC, FP16_TENSOR_CORES, BF16_ARITHMETIC),
    remedies=(
        Remedy(
            "fp16 in place of bf16, on cards from compute capability 7.0 to 7.5",
            "numerics",
            "fp16",
            since=FP16_TENSOR_CORES.value,
            before=BF16_ARITHMETIC.value,
        ),
        Remedy("fp32", "numerics"),
    ),
    check=check,
)
