"""MD801: each step leaves more allocated than the one before."""

from __future__ import annotations

from memdoctor.records import Finding, Severity
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.growth.growing import LEAST_GROWTH, SOON, TWO_STEPS, Growing, growing_of
from memdoctor.rules.rule import Remedy, Rule
from memdoctor.units import format_bytes


def check(evidence: Evidence) -> Finding | None:
    """Beside what MD802 is about, more is allocated at the end of each step than at the end of the one before."""
    growing = growing_of(evidence)
    if growing is None or 2 * growing.of_activations >= growing.bytes:
        return None
    return RULE.finding(
        growth_severity(growing, evidence),
        f"{growth_in_words(growing, evidence)}. Most of it: {growing.largest}",
        {"growth_bytes": growing.bytes, "steps_seen": len(growing.per_step) + 1},
        at_stake_bytes=growing.bytes,
    )


def growth_in_words(growing: Growing, evidence: Evidence) -> str:
    """How much a step adds, over how many steps that was seen, and when the card is full."""
    steps, until = len(growing.per_step) + 1, growing.until_full(evidence)
    full = "" if until is None else f"; at that rate the card is full after {until:,} steps more"
    return f"at the end of step {steps} {format_bytes(growing.bytes)} more are allocated than one step before{full}"


def growth_severity(growing: Growing, evidence: Evidence) -> Severity:
    """An error where the card is full soon."""
    until = growing.until_full(evidence)
    return "error" if until is not None and until < SOON.value else "warning"


RULE = Rule(
    id="MD801",
    title="Each step leaves more allocated than the one before",
    why=(
        "After the first step, which makes the optimizer's state, a step should end with what it began with. What "
        "grows in *allocated* is held by some reference: a list of outputs, a metric, a hook. (Growth in *reserved* "
        "alone is cache, as lengths change.)"
    ),
    needs=(TWO_STEPS,),
    thresholds=(LEAST_GROWTH, SOON),
    remedies=(
        Remedy("move what is kept to the host: .detach().cpu(), or .item() for a number", "time"),
        Remedy("empty the list or the cache that keeps it, once a step", "none"),
    ),
    check=check,
)
