"""MD203: activation checkpointing does nothing for the peak, which is elsewhere."""

from __future__ import annotations

from memdoctor.records import Finding, Lever
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import probed, where
from memdoctor.rules.reading import NEARLY_FULL, gain, left, presses
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_EFFECT = Threshold(
    "share of the reserved peak", 0.05, "that checkpointing lowers or raises it by",
    "ours: a twentieth of the peak is no reason for a third more time",
)  # fmt: skip


def _no_effect(evidence: Evidence, saved: int) -> bool:
    """Whether so few bytes are nothing beside the reserved peak."""
    return abs(saved) < LEAST_EFFECT.value * evidence.peak.reserved_bytes


def check(evidence: Evidence) -> Finding | None:
    """Checkpointing, in use or probed where memory is short, moves the reserved peak by next to nothing."""
    lever, saved = evidence.lever("checkpointing"), gain(evidence.lever("checkpointing"))
    if lever is None or saved is None or not _asked(evidence) or not _no_effect(evidence, saved):
        return None
    in_use = lever.status == "in use"
    moved = (
        f"saves {format_bytes(saved)}" if saved > 0 else f"costs {format_bytes(-saved)}" if saved else "saves nothing"
    )
    return RULE.finding(
        "warning" if in_use else "info",
        f"{'with' if in_use else 'without'} checkpointing the peak is in {evidence.peak.phase}, and it {moved} of the "
        f"{format_bytes(evidence.peak.reserved_bytes)} reserved{_phase(lever)}",
        {"in_use": in_use, "saves_bytes": saved, "peak_phase": evidence.peak.phase},
        at_stake_bytes=0,
        remedies=(*RULE.remedies[: int(in_use)], *left(evidence, RULE.remedies[1:])),
    )


def _phase(lever: Lever) -> str:
    if not lever.phase or lever.phase_before_bytes is None or lever.phase_after_bytes is None:
        return ""
    before, after = lever.phase_before_bytes, lever.phase_after_bytes
    return (
        f"; it takes the {lever.phase} phase from {format_bytes(before)} to {format_bytes(after)}, which is not what "
        "the peak hangs on"
    )


def _asked(evidence: Evidence) -> bool:
    return evidence.workload.gradient_checkpointing or presses(evidence)


RULE = Rule(
    id="MD203",
    title="Activation checkpointing does nothing for the peak",
    why=(
        "Checkpointing lowers what is alive between forward and backward. Where the optimizer step, the clipping of "
        "gradients or a single layer's or head's temporaries are the peak, it costs its third of time for nothing."
    ),
    needs=(where(_asked, probed("checkpointing")),),
    thresholds=(LEAST_EFFECT, NEARLY_FULL),
    remedies=(
        Remedy("checkpointing switched off again", "none", "checkpointing"),
        Remedy("a fused optimizer step, where the peak is the optimizer's temporaries", "none", "fused optimizer"),
        Remedy("an optimizer with less state: 8-bit AdamW, Adafactor", "numerics", "8-bit optimizer"),
    ),
    check=check,
)
