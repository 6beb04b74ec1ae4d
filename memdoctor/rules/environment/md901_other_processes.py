"""MD901: other processes hold a part of the card."""

from __future__ import annotations

from memdoctor.records import Finding, Severity
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import others_decide
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the card", 0.05, "of the card", "ours: what a desktop holds is less, and decides nothing by itself"
)


def check(evidence: Evidence) -> Finding | None:
    """Others hold a share of the card, or so much that the run would fit without them."""
    device = evidence.device
    others, alone = device.other_processes_bytes, device.total_bytes - device.context_bytes
    cut_short = not evidence.fits and evidence.examination.provenance.mode == "measured"
    decides = others_decide(evidence)
    if others == 0 or (others < LEAST_SHARE.value * device.total_bytes and not decides):
        return None
    severity: Severity = "error" if decides else "info" if evidence.fits else "warning"
    return RULE.finding(
        severity,
        f"{format_bytes(others)} of {format_bytes(device.total_bytes)} are held by other processes; without them "
        f"PyTorch could have {format_bytes(alone)}, with them {format_bytes(evidence.limit_bytes)}. "
        f"{_this_run(evidence, cut_short=cut_short, decides=decides)}",
        {"other_processes_bytes": others, "limit_bytes": evidence.limit_bytes, "alone_bytes": alone},
        at_stake_bytes=others,
    )


def _this_run(evidence: Evidence, *, cut_short: bool, decides: bool) -> str:
    reserves = format_bytes(evidence.peak.reserved_bytes)
    if evidence.fits:
        return f"This run reserves {reserves} and fits all the same"
    if cut_short:
        return f"This run had reserved {reserves} when it stopped; what it would have taken then is not known"
    if decides:
        return f"This run reserves {reserves} and would fit without them: its batch size is not the problem"
    return f"This run reserves {reserves} and would not fit without them either"


RULE = Rule(
    id="MD901",
    title="Other processes hold a part of the card",
    why=(
        "A card is shared by whoever runs on it: a notebook that was left open, a run that ended in an error and still "
        "lives, another user. What they hold cannot be had, whatever this run is set to."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("see who it is (memdoctor env, nvidia-smi) and end what is no longer needed", "none"),
        Remedy("CUDA_VISIBLE_DEVICES with a card that is free", "none"),
    ),
    check=check,
)
