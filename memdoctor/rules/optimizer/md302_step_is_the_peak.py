"""MD302: the optimizer step is the peak."""

from __future__ import annotations

from memdoctor.records import Category, Finding, PhaseName, Severity
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.lever_effects import probed_effects, still_open
from memdoctor.rules.reading import others_decide
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.static_state import static_in_words
from memdoctor.units import format_bytes

NEARNESS = Threshold(
    "nearness to the peak", 0.99, "of what is allocated at the peak",
    "ours: at small batches backward ends, clipping passes and the step runs at the same height, and which of them is "
    "the peak is decided by kilobytes",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """In the optimizer step nearly as much is allocated as at the peak of all."""
    step, peak, limit = evidence.phase_peak(PhaseName.OPTIMIZER), evidence.peak.allocated_bytes, evidence.limit_bytes
    if step < NEARNESS.value * peak:
        return None
    activations = evidence.most_held[Category.ACTIVATIONS]
    # else it is said of the static state itself, or of whoever else is on the card
    alone = step > limit >= evidence.static_bytes and not others_decide(evidence)
    severity: Severity = "info" if evidence.fits else "error" if alone else "warning"
    return RULE.finding(
        severity,
        f"the optimizer step holds {format_bytes(step)} ({static_in_words(evidence)}), the whole run at most "
        f"{format_bytes(peak)}; activations, {format_bytes(activations)} at their most, are gone by then: batch size, "
        "length, checkpointing and attention bring the peak no lower than the "
        f"step{probed_effects(evidence, 'batch', 'checkpointing', 'fp16')}",
        {"step_bytes": step, "peak_allocated_bytes": peak, "activations_bytes": activations},
        at_stake_bytes=step,
        remedies=still_open(evidence, RULE.remedies),
    )


RULE = Rule(
    id="MD302",
    title="The optimizer step is the peak",
    why=(
        "While the optimizer steps, parameters, all gradients and all state are there at once. At small batches that "
        "is more than forward and backward take, and settings that shrink activations then change nothing."
    ),
    thresholds=(NEARNESS,),
    remedies=(
        Remedy("an optimizer that keeps less: adamw_bnb_8bit", "numerics", "8-bit optimizer"),
        Remedy("adafactor", "numerics", "Adafactor"),
        Remedy("freeze what need not be trained", "task", "freezing"),
        Remedy("LoRA", "task", "LoRA"),
    ),
    check=check,
)
