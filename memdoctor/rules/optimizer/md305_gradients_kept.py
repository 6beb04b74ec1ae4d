"""MD305: gradients are zeroed and kept, where they could be dropped."""

from __future__ import annotations

from memdoctor.records import Finding, PhaseName
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.lever_effects import probed_effects
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the peak", 0.05, "of what is allocated at the peak",
    "ours: below a twentieth, what becomes of gradients between steps is not what decides whether a step fits",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """``zero_grad`` does not set to ``None``, and the gradients are there in the forward pass of a later step."""
    if evidence.workload.zero_grad_set_to_none:
        return None
    later = (use for use in evidence.phases if use.name == PhaseName.FORWARD and use.step > 1)
    first = next(later, None)  # in the later micro-batches of a step gradients are there anyhow
    kept = first.breakdown.gradients if first else 0
    peak, accumulates = evidence.peak, evidence.workload.gradient_accumulation_steps > 1
    if kept == 0 or kept < LEAST_SHARE.value * peak.allocated_bytes:
        return None
    matters = peak.phase in (PhaseName.FORWARD, PhaseName.BACKWARD) and not accumulates
    where = "there" if matters else f"in {peak.phase}, where gradients are there anyhow"
    if accumulates:
        where = "in a later micro-batch, where gradients are there anyhow"
    return RULE.finding(
        "warning" if matters else "info",
        f"gradients of the step before, {format_bytes(kept)}, stay through forward and backward beside the "
        f"activations; the peak is {where}{probed_effects(evidence, 'set_to_none')}",
        {"kept_bytes": kept, "peak_phase": peak.phase},
        at_stake_bytes=kept if matters else 0,
    )


RULE = Rule(
    id="MD305",
    title="Gradients of the step before are kept as zeros",
    why=(
        "zero_grad(set_to_none=False) fills gradients with zeros and keeps them, so that they are there in forward and "
        "backward, when activations are. Set to None they are made anew, one by one, as activations die."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(Remedy("zero_grad(set_to_none=True), PyTorch's default", "none", "set_to_none"),),
    check=check,
)
