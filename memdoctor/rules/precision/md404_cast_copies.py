"""MD404: copies of the weights in 16 bits hold a share of the peak."""

from __future__ import annotations

from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.precision.md403_not_in_hardware import BF16_ARITHMETIC, FP16_ARITHMETIC
from memdoctor.rules.reading import counted, left, percent, presses
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "copies by autocast", 0.1, "of what is allocated at the peak",
    "ours: below a tenth there is always something larger to begin with",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """At the peak, what autocast keeps of weights holds a tenth or more."""
    copies, peak = evidence.breakdown.autocast_copies, evidence.peak.allocated_bytes
    if not copies or copies < LEAST_SHARE.value * peak:
        return None
    parameters = evidence.most_held[Category.PARAMETERS]
    count = sum(group.count for group in evidence.tensors if group.category is Category.AUTOCAST_COPIES)
    return RULE.finding(
        "warning" if presses(evidence) else "info",
        f"copies of {counted(count, 'weight')} in {evidence.workload.precision.value} hold {format_bytes(copies)}, "
        f"{percent(copies, peak)} of the peak in {evidence.peak.phase}, beside the {format_bytes(parameters)} of "
        "parameters that they are copies of",
        {"copies_bytes": copies, "parameters_bytes": parameters, "copies": count},
        at_stake_bytes=copies,
        remedies=left(evidence, RULE.remedies),
    )


RULE = Rule(
    id="MD404",
    title="Copies of the weights in 16 bits hold a share of the peak",
    why=(
        "Autocast casts each weight once in a forward pass and keeps the copy until the pass ends; backward needs it "
        "after that. Up to half of the parameters' bytes are there a second time, whatever the batch."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy(
            "weights stored in 16 bits (dtype bfloat16), which need no copy", "numerics", since=BF16_ARITHMETIC.value
        ),
        Remedy("LoRA over a base model that is stored in 16 bits", "task", "LoRA", since=FP16_ARITHMETIC.value),
    ),
    check=check,
)
