"""MD207: activation checkpointing costs memory."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import probed, where
from memdoctor.rules.reading import NEARLY_FULL, effect, gain, presses
from memdoctor.rules.rule import Remedy, Rule, Threshold

LEAST_COST = Threshold(
    "share of the reserved peak", 0.01, "that checkpointing adds",
    "ours: below a hundredth it is the allocator's segments of 2 and 20 MiB (c10/core/AllocatorConfig.h, "
    "kSmallBuffer, kLargeBuffer)",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """With checkpointing, in use or probed where memory is short, more is reserved than without."""
    lever, saved = evidence.lever("checkpointing"), gain(evidence.lever("checkpointing"))
    if (
        lever is None
        or saved is None
        or not _asked(evidence)
        or -saved < LEAST_COST.value * evidence.peak.reserved_bytes
    ):
        return None
    in_use = lever.status == "in use"
    phase = evidence.peak.phase if in_use or lever.peak is None else lever.peak.phase
    return RULE.finding(
        "warning" if in_use else "info",
        f"{effect(evidence, lever)}; with it the peak is in {phase}",
        {"in_use": in_use, "costs_bytes": -saved},
        at_stake_bytes=-saved if in_use else 0,
    )


def _asked(evidence: Evidence) -> bool:
    return evidence.workload.gradient_checkpointing or presses(evidence)


RULE = Rule(
    id="MD207",
    title="Activation checkpointing costs memory",
    why=(
        "A checkpointed layer is computed again in backward, beside the gradients that have piled up by then. Where "
        "layers are few or short, or weights are cast anew for every layer, that is more than checkpointing saved."
    ),
    needs=(where(_asked, probed("checkpointing")),),
    thresholds=(LEAST_COST, NEARLY_FULL),
    remedies=(Remedy("checkpointing switched off", "none", "checkpointing"),),
    check=check,
)
