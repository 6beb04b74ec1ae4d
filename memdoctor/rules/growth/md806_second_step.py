"""MD806: the first forward and backward fit, and what follows does not, for the optimizer's state."""

from __future__ import annotations

from memdoctor.records import Category, Finding, PhaseName
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import left
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

FIRST = Threshold("first step", 1, "step", "PyTorch's optimizers make their state in the first call of step()")


def check(evidence: Evidence) -> Finding | None:
    """The run stops in the first optimizer step or later, and forward and backward of the first step fit."""
    full = evidence.ran_out
    if full is None or full.phase == PhaseName.EVALUATION:
        return None
    if full.step <= FIRST.value and full.phase != PhaseName.OPTIMIZER:
        return None
    first = [use.peak_allocated_bytes for use in evidence.phases if use.step == FIRST.value and use.name in _WORK]
    state = evidence.most_held[Category.OPTIMIZER_STATE]
    if not first or max(first) > evidence.limit_bytes or state == 0:
        return None
    return RULE.finding(
        "info",
        f"forward and backward of the first step take {format_bytes(max(first))} of the "
        f"{format_bytes(evidence.limit_bytes)} that PyTorch can have; then the optimizer makes its state, "
        f"{format_bytes(state)}, which stays, and the run stops in {full.phase} of step {full.step}. That is no leak: "
        "every later step is like the second",
        {"first_step_bytes": max(first), "state_bytes": state, "limit_bytes": evidence.limit_bytes},
        at_stake_bytes=state,
        remedies=left(evidence, RULE.remedies),
    )


_WORK = (PhaseName.FORWARD, PhaseName.BACKWARD)

RULE = Rule(
    id="MD806",
    title="The first batch fits, and the optimizer's state comes after it",
    why=(
        "Optimizers make their state in their first step, after the first backward. A run whose first batch fits can "
        "therefore stop in that step or in the second forward, which looks like a leak and is none."
    ),
    thresholds=(FIRST,),
    remedies=(
        Remedy("an optimizer that keeps less: adamw_bnb_8bit, adafactor", "numerics", "8-bit optimizer"),
        Remedy("a smaller batch: it has to fit beside the state", "time", "batch"),
    ),
    check=check,
)
