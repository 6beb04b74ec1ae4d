"""MD604: the cache is emptied, and the peak is no lower for it."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import probed
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEVER = "empty_cache"
LEAST_SAVED = Threshold(
    "least saved", 1, "byte of what is reserved", "ours: what saves nothing at all and costs time is of no use"
)


def _without(evidence: Evidence) -> str | None:
    return None if evidence.workload.torch_empty_cache_steps is None else probed(LEVER).missing(evidence)


def check(evidence: Evidence) -> Finding | None:
    """``torch_empty_cache_steps`` is set, and without it no more is reserved."""
    steps, lever = evidence.workload.torch_empty_cache_steps, evidence.lever(LEVER)
    if steps is None or lever is None or lever.saves_bytes is None:
        return None
    saved = -lever.saves_bytes  # the lever in use tells what leaving it would save
    if saved >= LEAST_SAVED.value or (evidence.fits and lever.fits is False):
        return None
    reserved = evidence.peak.reserved_bytes
    return RULE.finding(
        "warning",
        f"the cache is emptied every {steps} steps, between forward and backward; PyTorch reserves "
        f"{format_bytes(reserved)} with it and {format_bytes(reserved + saved)} without, since what backward needs is "
        "reserved anew right after",
        {"reserved_bytes": reserved, "without_bytes": reserved + saved, "torch_empty_cache_steps": steps},
    )


RULE = Rule(
    id="MD604",
    title="The cache is emptied without effect on the peak",
    why=(
        "torch.cuda.empty_cache gives unused segments back to the driver. Tensors keep theirs, and when memory is "
        "short PyTorch gives its cache back by itself before it fails. Emptying it costs a synchronisation and new "
        "requests to the driver each time; it helps other processes on the card, not this one."
    ),
    needs=(Need("a probe without emptying the cache", _without),),
    thresholds=(LEAST_SAVED,),
    remedies=(Remedy("leave torch_empty_cache_steps out", "none", LEVER),),
    check=check,
)
