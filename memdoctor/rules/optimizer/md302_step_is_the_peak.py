"""MD302: the optimizer step is the peak."""

from __future__ import annotations

from dataclasses import replace

from memdoctor.records import Category, Finding, PhaseName, Severity
from memdoctor.rules.evidence import STATIC, Evidence
from memdoctor.rules.lever_effects import probed_effects, still_open
from memdoctor.rules.reading import others_decide, presses
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.static_state import static_in_words
from memdoctor.units import format_bytes

NEARNESS = Threshold(
    "nearness to the peak", 0.99, "of what is allocated at the peak",
    "ours: at small batches backward ends, clipping passes and the step runs at the same height, and which of them is "
    "the peak is decided by kilobytes",
)  # fmt: skip

NEARLY = "The optimizer step is nearly the peak"


def check(evidence: Evidence) -> Finding | None:
    """In the optimizer step nearly as much is allocated as at the peak of all.

    Where the peak is in another phase, that matters only where memory is short.
    """
    step, peak, limit = evidence.phase_peak(PhaseName.OPTIMIZER), evidence.peak.allocated_bytes, evidence.limit_bytes
    elsewhere = evidence.peak.phase != PhaseName.OPTIMIZER
    if step < NEARNESS.value * peak or (elsewhere and not presses(evidence)):
        return None
    activations = evidence.most_held[Category.ACTIVATIONS]
    # else it is said of the static state itself, or of whoever else is on the card
    alone = step > limit >= evidence.static_bytes and not others_decide(evidence)
    severity: Severity = "info" if evidence.fits else "error" if alone else "warning"
    where = f", in {evidence.peak.phase}" if elsewhere else ""
    finding = RULE.finding(
        severity,
        f"the optimizer step holds {format_bytes(step)} ({static_in_words(evidence)}{_rest(evidence, step)}), the "
        f"whole run at most {format_bytes(peak)}{where}; activations, {format_bytes(activations)} at their most, are "
        "gone by then: batch size, length, checkpointing and attention bring the peak no lower than the "
        f"step{probed_effects(evidence, 'batch', 'checkpointing', 'fp16')}",
        {"step_bytes": step, "peak_allocated_bytes": peak, "activations_bytes": activations},
        at_stake_bytes=step,
        remedies=still_open(evidence, RULE.remedies),
    )
    return replace(finding, title=NEARLY) if elsewhere else finding


def _rest(evidence: Evidence, step: int) -> str:
    """``, workspace 16.25 MiB``: what else is there when the step holds most, largest first."""
    use = next(use for use in evidence.phases if use.name == PhaseName.OPTIMIZER and use.peak_allocated_bytes == step)
    held = {kind: int(getattr(use.breakdown, kind.value)) for kind in Category if kind not in STATIC}
    there = sorted(((size, kind.value.replace("_", " ")) for kind, size in held.items() if size), reverse=True)
    return "".join(f", {name} {format_bytes(size)}" for size, name in there)


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
