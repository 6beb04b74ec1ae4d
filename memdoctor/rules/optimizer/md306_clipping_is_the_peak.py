"""MD306: clipping the gradient norm is the peak."""

from __future__ import annotations

from memdoctor.records import Finding, PhaseName
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the peak", 0.01, "of what is allocated at the peak",
    "ours: clipping's own norms and buffers are kilobytes to a megabyte, and it often is the peak by no more than that",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """The peak is in clipping, and higher than any other phase by a share."""
    peak = evidence.peak
    if peak.phase != PhaseName.CLIP:
        return None
    others = max((use.peak_allocated_bytes for use in evidence.phases if use.name != PhaseName.CLIP), default=0)
    more = peak.allocated_bytes - others
    if more < LEAST_SHARE.value * peak.allocated_bytes:
        return None
    return RULE.finding(
        "info" if evidence.fits else "error" if others <= evidence.limit_bytes else "warning",
        f"clipping to the norm {evidence.workload.max_grad_norm:g} takes {format_bytes(peak.allocated_bytes)}, every "
        f"other phase at most {format_bytes(others)}: {format_bytes(more)} are what clipping itself makes",
        {"clip_bytes": more, "others_bytes": others},
        at_stake_bytes=more,
    )


RULE = Rule(
    id="MD306",
    title="Clipping the gradient norm is the peak",
    why=(
        "torch.nn.utils.clip_grad_norm_ takes the norm of each gradient and scales all of them. Where gradients are in "
        "16 bits or a foreach kernel falls back, copies of gradients are made on the way, when all gradients are there."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("max_grad_norm=0 where clipping is not needed", "numerics"),
        Remedy("clip_grad_norm_(..., foreach=False) in a loop of your own", "time"),
    ),
    check=check,
)
