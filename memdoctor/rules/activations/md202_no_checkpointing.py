"""MD202: activations are the peak, and every layer keeps all of its own."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import probed, where
from memdoctor.rules.reading import NEARLY_FULL, effect, gain, left, percent, presses
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "activations", 0.5, "of what is allocated at the peak",
    "ours: the largest part; below it something else decides",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """Memory is short, activations hold half of the peak, and checkpointing was probed to lower it."""
    lever, saved = evidence.lever("checkpointing"), gain(evidence.lever("checkpointing"))
    activations, peak = evidence.breakdown.activations, evidence.peak.allocated_bytes
    if not _asked(evidence) or lever is None or not saved or saved < 0:
        return None
    if activations < LEAST_SHARE.value * peak:
        return None
    fits = ", and then it fits" if lever.fits and not evidence.fits else ""
    return RULE.finding(
        "warning",
        f"activations are {format_bytes(activations)}, {percent(activations, peak)} of the peak in "
        f"{evidence.peak.phase}, and no layer is checkpointed; {effect(evidence, lever)}{fits}",
        {"activations_bytes": activations, "saves_bytes": saved, "fits_with_it": bool(lever.fits)},
        at_stake_bytes=saved,
        remedies=left(evidence, RULE.remedies),
    )


def _asked(evidence: Evidence) -> bool:
    return presses(evidence) and not evidence.workload.gradient_checkpointing


RULE = Rule(
    id="MD202",
    title="Activations are the peak, and every layer keeps all of its own",
    why=(
        "Without activation checkpointing, everything that a layer's backward needs stays from its forward pass on. "
        "With it a layer keeps its input, and computes the rest again: about a third more time."
    ),
    needs=(where(_asked, probed("checkpointing")),),
    thresholds=(LEAST_SHARE, NEARLY_FULL),
    remedies=(
        Remedy("activation checkpointing", "time", "checkpointing"),
        Remedy("a smaller per-device batch with more gradient accumulation", "time", "batch", accumulates=True),
    ),
    check=check,
)
