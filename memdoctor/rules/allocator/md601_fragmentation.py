"""MD601: free pieces inside PyTorch's segments are a large part of the card when a request fails."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.lever_effects import probed_effects
from memdoctor.rules.reading import left
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "stranded share", 0.13, "of the card",
    "29 messages of public reports: three have 21, 25 and 79 %, all others at most 5.1 %; the middle of the gap. That "
    "what is stranded is more than was asked for says nothing: it holds in 16 of them",
)  # fmt: skip


def _figures(evidence: Evidence) -> str | None:
    ran_out = evidence.ran_out
    if ran_out is None or (ran_out.allocated_bytes is not None and ran_out.reserved_bytes is not None):
        return None
    return "the run ran out of memory, but the file does not say what PyTorch had reserved then"


def check(evidence: Evidence) -> Finding | None:
    """Reserved less allocated at the failure is a large share of the card, and would have served the request."""
    ran_out, total = evidence.ran_out, evidence.device.total_bytes
    if ran_out is None or ran_out.reserved_bytes is None or ran_out.allocated_bytes is None:
        return None
    stranded = ran_out.reserved_bytes - ran_out.allocated_bytes
    enough = stranded + ran_out.free_bytes >= ran_out.requested_bytes
    if stranded < LEAST_SHARE.value * total or not enough:
        return None
    return RULE.finding(
        "error",
        f"when {format_bytes(ran_out.requested_bytes)} could not be had in {ran_out.phase}, PyTorch had reserved "
        f"{format_bytes(ran_out.reserved_bytes)} and given out {format_bytes(ran_out.allocated_bytes)}: "
        f"{format_bytes(stranded)}, {100 * stranded / total:.0f} % of the card, lay in pieces between tensors"
        f"{probed_effects(evidence, 'expandable_segments')}",
        {
            "stranded_bytes": stranded, "requested_bytes": ran_out.requested_bytes, "free_bytes": ran_out.free_bytes,
            "total_bytes": total,
        },
        at_stake_bytes=stranded,
        remedies=left(evidence, RULE.remedies),
    )  # fmt: skip


RULE = Rule(
    id="MD601",
    title="Memory that PyTorch holds is in pieces too small for the request",
    why=(
        "PyTorch gives a segment back only when all of it is free. Sizes that change from batch to batch leave free "
        "pieces between living tensors; a request larger than each of them fails although their sum would do."
    ),
    needs=(Need("what PyTorch held when it failed", _figures),),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "none", "expandable_segments"),
        Remedy("pad batches to few lengths (pad_to_multiple_of)", "time"),
    ),
    check=check,
)
