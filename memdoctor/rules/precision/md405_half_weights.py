"""MD405: weights are stored, and updated, in 16 bits."""

from __future__ import annotations

from memdoctor.records import Category, Dtype, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

BF16_STEP = Threshold(
    "spacing of bfloat16", 2.0**-7, "of a weight's power of two",
    "torch.finfo(torch.bfloat16).eps: 7 bits behind the point",
)  # fmt: skip
FP16_LEAST = Threshold(
    "least float16", 2.0**-24, "above zero", "torch.finfo(torch.float16).smallest_normal x eps: the least subnormal",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """The type of the weights is one of 16 bits and they are trained as they are: no LoRA beside them."""
    workload = evidence.workload
    if workload.dtype is Dtype.FLOAT32 or workload.lora_rank:
        return None
    parameters = evidence.most_held[Category.PARAMETERS]
    half = workload.dtype is Dtype.FLOAT16
    numbers = (
        f"squares of gradients below {FP16_LEAST.value**0.5:.1e} are zero in float16, and so is Adam's epsilon of "
        "1e-8, so that it divides by next to nothing"
        if half
        else f"an update below {BF16_STEP.value / 2:.1e} of a weight's power of two is rounded away, and at a learning "
        "rate of 5e-5 most are"
    )
    return RULE.finding(
        "warning" if half else "info",
        f"weights, gradients and optimizer state are in {workload.dtype.value} ({format_bytes(parameters)} of "
        f"parameters, {format_bytes(2 * parameters)} in fp32), and there is no fp32 copy that an update is added to: "
        f"{numbers}",
        {"dtype": workload.dtype.value, "parameters_bytes": parameters},
    )


RULE = Rule(
    id="MD405",
    title="Weights are updated in 16 bits",
    why=(
        "Storing the model in 16 bits halves its static state, which autocast does not; but then the optimizer adds "
        "its small steps to numbers of few digits. That is another training, not the same one in less memory."
    ),
    thresholds=(BF16_STEP, FP16_LEAST),
    remedies=(
        Remedy("fp32 weights with --bf16 or --fp16", "numerics"),
        Remedy("an optimizer that keeps what rounding drops: optimi's AdamW with Kahan summation", "numerics"),
        Remedy("LoRA, whose adapters peft keeps in fp32", "task", "LoRA"),
    ),
    check=check,
)
