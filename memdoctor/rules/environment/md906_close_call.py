"""MD906: whether it fits is closer than the context is known."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import left
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

WITHIN = Threshold(
    "within", 1, "times the error of the context",
    "memdoctor gpus --sources: the catalogue's context has a band, and a card's own may lie anywhere in it",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """A simulated run fits, or does not, by no more than the context's error.

    Where PyTorch had to give cached segments back, it reserves all that the card gives, and what tensors leave of that
    is the margin.
    """
    device, margin = evidence.device, _margin(evidence)
    if evidence.examination.provenance.mode == "measured" or device.is_cpu:
        return None
    error = device.context_error_bytes
    if abs(margin) > WITHIN.value * error:
        return None
    verdict = f"fits, {format_bytes(margin)} to spare" if evidence.fits else f"does not fit, by {format_bytes(-margin)}"
    return RULE.finding(
        "warning",
        f"the run {verdict}; the context, {format_bytes(device.context_bytes)}, is known to {format_bytes(error)} "
        "either way: with another driver it may turn out the other way",
        {"headroom_bytes": margin, "context_error_bytes": error, "context_source": device.context_source},
        at_stake_bytes=error,
        remedies=left(evidence, RULE.remedies),
    )


def _margin(evidence: Evidence) -> int:
    gave_back = any(segment.delta_bytes < 0 for segment in evidence.examination.timeline.segments)
    if evidence.fits and gave_back:
        return evidence.limit_bytes - evidence.peak.max_memory_allocated_bytes
    return evidence.breakdown.free


RULE = Rule(
    id="MD906",
    title="The verdict is closer than the context is known",
    why=(
        "What the CUDA context takes depends on the driver, the release of CUDA and the kernels that are loaded. Where "
        "a run fits, or does not, by less than that varies, the verdict is a close call."
    ),
    thresholds=(WITHIN,),
    remedies=(
        Remedy("plan for a little less: a batch smaller by one, or a slightly shorter length", "time", "batch"),
        Remedy("measure on the card itself: memdoctor diagnose --backend gpu", "none"),
    ),
    check=check,
)
