"""MD802: activations of earlier steps are still there."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.growth.growing import LEAST_GROWTH, SOON, TWO_STEPS, growing_of
from memdoctor.rules.growth.md801_growth import growth_in_words, growth_severity
from memdoctor.rules.rule import Remedy, Rule
from memdoctor.units import format_bytes


def check(evidence: Evidence) -> Finding | None:
    """At least half of what each step leaves over was packed for backward."""
    growing = growing_of(evidence)
    if growing is None or 2 * growing.of_activations < growing.bytes:
        return None
    return RULE.finding(
        growth_severity(growing, evidence),
        f"{growth_in_words(growing, evidence)}. {format_bytes(growing.of_activations)} of it are activations: outputs "
        f"or a loss are kept with the graph that made them. Most of it: {growing.largest}",
        {
            "growth_bytes": growing.bytes, "activations_bytes": growing.of_activations,
            "steps_seen": len(growing.per_step) + 1,
        },
        at_stake_bytes=growing.bytes,
    )  # fmt: skip


RULE = Rule(
    id="MD802",
    title="Activations of earlier steps are still there",
    why=(
        "A tensor that requires a gradient keeps the graph that made it, and what that graph packed for backward lives "
        "until backward has run through it. Outputs in a list, a loss added to a running sum without detach, a teacher "
        "without no_grad, or backward(retain_graph=True) keep whole steps alive."
    ),
    needs=(TWO_STEPS,),
    thresholds=(LEAST_GROWTH, SOON),
    remedies=(
        Remedy("keep loss.item() and outputs.detach() in place of the tensors", "none"),
        Remedy("torch.no_grad() around what is not trained, such as a teacher", "none"),
        Remedy("no retain_graph=True where one backward is enough", "none"),
    ),
    check=check,
)
