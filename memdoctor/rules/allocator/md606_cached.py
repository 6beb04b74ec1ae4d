"""MD606: much of what is reserved is cache."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import left
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of what is reserved", 0.25, "of what is reserved at the peak",
    "ours: of BERT's training steps it is 4 to 13 %, of evaluations that gather growing predictions 39 to 59 %",
)  # fmt: skip

LEAST_OF_CARD = Threshold("share of the card", 0.05, "of the card", "ours: less is nobody's loss")


def check(evidence: Evidence) -> Finding | None:
    """Reserved less allocated is a large share of what is reserved."""
    overhead, peak = evidence.breakdown.allocator_overhead, evidence.peak
    least = max(LEAST_SHARE.value * peak.reserved_bytes, LEAST_OF_CARD.value * evidence.device.total_bytes)
    if overhead < least:
        return None
    return RULE.finding(
        "info",
        f"PyTorch reserves {format_bytes(peak.reserved_bytes)}, and tensors hold at most "
        f"{format_bytes(peak.allocated_bytes)} of it: {format_bytes(overhead)} are cached blocks of sizes that came "
        f"and went. nvidia-smi shows {format_bytes(peak.device_bytes)}; that is no leak, and PyTorch gives whole "
        "segments back before it fails",
        {"overhead_bytes": overhead, "reserved_bytes": peak.reserved_bytes, "allocated_bytes": peak.allocated_bytes},
        at_stake_bytes=overhead,
        remedies=left(evidence, RULE.remedies),
    )


RULE = Rule(
    id="MD606",
    title="Much of what is reserved is cache",
    why=(
        "The caching allocator keeps what was freed for the next request of that size. Sizes that grow, such as "
        "predictions joined batch by batch, or lengths that change, leave blocks that nothing fits any more. It is "
        "what nvidia-smi counts, and what other processes cannot have."
    ),
    thresholds=(LEAST_SHARE, LEAST_OF_CARD),
    remedies=(
        Remedy("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "none", "expandable_segments"),
        Remedy("torch.cuda.empty_cache() where other processes need the room", "time"),
    ),
    check=check,
)
