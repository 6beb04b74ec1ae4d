"""MD603: expandable segments would hold the same tensors in much less."""

from __future__ import annotations

from memdoctor.records import Finding, Severity
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import probed
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEVER = "expandable_segments"
LEAST_SHARE = Threshold(
    "share that is saved", 0.05, "of what PyTorch can reserve on the card",
    "ours: a healthy step's overhead is 4 to 13 % of what it reserves, mostly cache that PyTorch gives up on demand; "
    "it matters where it is a share of the card",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """The same events, replayed or measured with expandable segments, reserve less by a share, or then fit."""
    lever, reserved = evidence.lever(LEVER), evidence.peak.reserved_bytes
    if lever is None or lever.status != "probed" or lever.saves_bytes is None:
        return None
    then_fits = bool(lever.fits) and not evidence.fits
    if lever.saves_bytes <= 0 or (lever.saves_bytes < LEAST_SHARE.value * evidence.limit_bytes and not then_fits):
        return None
    severity: Severity = "error" if then_fits else "info" if evidence.fits else "warning"
    overhead = evidence.breakdown.allocator_overhead
    return RULE.finding(
        severity,
        f"{format_bytes(overhead)} of the {format_bytes(reserved)} that PyTorch reserves hold no tensor at the peak; "
        "with expandable segments it reserves "
        f"{format_bytes(reserved - lever.saves_bytes)}{', and the run fits' if then_fits else ''}",
        {"overhead_bytes": overhead, "reserved_bytes": reserved, "saves_bytes": lever.saves_bytes},
        at_stake_bytes=lever.saves_bytes,
    )


RULE = Rule(
    id="MD603",
    title="Segments of fixed size hold much more than their tensors",
    why=(
        "PyTorch asks the driver for segments of the size of a request, and a freed one serves only what fits into it. "
        "Expandable segments map pages as they are needed, so that what is free in one place serves any request."
    ),
    needs=(probed(LEVER),),
    thresholds=(LEAST_SHARE,),
    remedies=(Remedy("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "none", LEVER),),
    check=check,
)
