"""MD602: rounding and tails that are not split off are a share of what is allocated."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of what was asked for", 0.05, "of what is allocated at the peak",
    "ours: of BERT's steps that we looked at it is 0.1 to 2 %",
)  # fmt: skip
_DIVISIONS = "roundup_power2_divisions"


def check(evidence: Evidence) -> Finding | None:
    """``max_memory_allocated`` is more than tensors asked for by a share."""
    peak = evidence.peak
    rounding = peak.max_memory_allocated_bytes - peak.allocated_bytes
    if rounding == 0 or rounding < LEAST_SHARE.value * peak.allocated_bytes:
        return None
    rounds_up = _DIVISIONS in evidence.device.alloc_conf
    cause = f"; {_DIVISIONS} is set, which rounds every size up" if rounds_up else ""
    return RULE.finding(
        "info" if evidence.fits else "warning",
        f"tensors asked for {format_bytes(peak.allocated_bytes)}, the allocator set "
        f"{format_bytes(peak.max_memory_allocated_bytes)} aside for them: {format_bytes(rounding)} more{cause}",
        {"rounding_bytes": rounding, "allocated_bytes": peak.allocated_bytes},
        at_stake_bytes=rounding,
        remedies=RULE.remedies if rounds_up else RULE.remedies[1:],
    )


RULE = Rule(
    id="MD602",
    title="Rounding takes a share of what is allocated",
    why=(
        "The allocator rounds sizes up to 512 B, and does not split off less than 1 MiB from a large block "
        "(CUDACachingAllocator.cpp, round_size and should_split). Very many small tensors, or many just above a "
        "block's size, make that a share of the card."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("leave roundup_power2_divisions out of PYTORCH_CUDA_ALLOC_CONF", "none"),
        Remedy("one tensor in place of many small ones, where they are your own", "none"),
    ),
    check=check,
)
