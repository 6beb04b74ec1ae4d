"""MD301: parameters, gradients and optimizer state fill the card, or most of the peak."""

from __future__ import annotations

from memdoctor.records import Finding, PhaseName, Severity
from memdoctor.rules.evidence import STATIC, Evidence
from memdoctor.rules.lever_effects import probed_effects, still_open
from memdoctor.rules.optimizer.md302_step_is_the_peak import NEARNESS
from memdoctor.rules.reading import others_decide
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.static_state import static_in_words
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the peak", 0.5, "of what is allocated at the peak",
    "ours: from one half on, all that depends on batch and length is the smaller part",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """What no batch size and no length changes is more than the card gives, or half of the peak.

    Where the run fits and the optimizer step is its peak, MD302 says it; where evaluation is, that is what matters.
    """
    static, limit, peak = evidence.static_bytes, evidence.limit_bytes, evidence.peak.allocated_bytes
    held = sum(getattr(evidence.breakdown, category.value) for category in STATIC)
    if static <= limit and (held < LEAST_SHARE.value * peak or (evidence.fits and _is_said_elsewhere(evidence))):
        return None
    others = others_decide(evidence)  # then the card is large enough, and what is missing is theirs
    severity: Severity = "info" if evidence.fits else "error" if static > limit and not others else "warning"
    compared = (
        f"{format_bytes(static)} together, {format_bytes(static - limit)} more than the {format_bytes(limit)} that "
        "PyTorch can have on this card, before the first activation"
        if static > limit
        else f"{format_bytes(held)} of it at the peak, {100 * held // peak} % of {format_bytes(peak)}"
    )
    levers = ("8-bit optimizer", "Adafactor", "SGD", "freezing", "LoRA")
    return RULE.finding(
        severity,
        f"{static_in_words(evidence)}: {compared}; no batch size and no length changes "
        f"it{probed_effects(evidence, *levers)}",
        {"static_bytes": static, "at_peak_bytes": held, "limit_bytes": limit, "peak_allocated_bytes": peak},
        at_stake_bytes=static if static > limit else held,
        remedies=still_open(evidence, RULE.remedies),
    )


def _is_said_elsewhere(evidence: Evidence) -> bool:
    step_is_the_peak = evidence.phase_peak(PhaseName.OPTIMIZER) >= NEARNESS.value * evidence.peak.allocated_bytes
    return step_is_the_peak or evidence.peak.phase == PhaseName.EVALUATION


RULE = Rule(
    id="MD301",
    title="Static state fills the card, or most of the peak",
    why=(
        "Training keeps a gradient and the optimizer's state for every parameter: with Adam in fp32 16 bytes each. "
        "That is there at batch 1 as it is at batch 64, and where it alone is larger than the card, no batch size fits."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("an optimizer that keeps less: adamw_bnb_8bit", "numerics", "8-bit optimizer"),
        Remedy("adafactor, which keeps rows and columns of the second moment", "numerics", "Adafactor"),
        Remedy("shard it over several GPUs (ZeRO, FSDP), not probed", "time", "sharding"),
        Remedy("freeze what need not be trained", "task", "freezing"),
        Remedy("LoRA", "task", "LoRA"),
        Remedy("a smaller model", "task"),
    ),
    check=check,
)
