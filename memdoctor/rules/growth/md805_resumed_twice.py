"""MD805: on resuming, the optimizer's state is there twice."""

from __future__ import annotations

from memdoctor.records import Category, Finding, Phase, PhaseName
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold
from memdoctor.units import format_bytes

TWICE = Threshold(
    "state while loading", 1.5, "times the state afterwards", "ours: between once and twice, which are the two cases"
)


def _resumes(evidence: Evidence) -> str | None:
    return None if _held(evidence)[1] else "no run that resumes from a checkpoint was watched"


def check(evidence: Evidence) -> Finding | None:
    """Before the first step more state is there than at its end."""
    most, kept = _held(evidence)
    if most < TWICE.value * kept:
        return None
    return RULE.finding(
        "error" if not evidence.fits and evidence.peak.phase == PhaseName.SETUP else "warning",
        f"while the checkpoint is loaded {format_bytes(most)} of optimizer state are on the GPU, afterwards "
        f"{format_bytes(kept)}: the file's copy and the optimizer's own",
        {"loading_bytes": most, "state_bytes": kept},
        at_stake_bytes=most - kept,
    )


def _held(evidence: Evidence) -> tuple[int, int]:
    """The most state in setup, and the state at its end."""
    timeline = evidence.examination.timeline
    now = most = 0
    for phase in filter(_is_setup, timeline.phases):
        for event in timeline.events[phase.begin : phase.end]:
            if timeline.blocks[event.block].category is Category.OPTIMIZER_STATE:
                now += event.delta_bytes
                most = max(most, now)
    return most, now


def _is_setup(phase: Phase) -> bool:
    return phase.name is PhaseName.SETUP


RULE = Rule(
    id="MD805",
    title="On resuming, the optimizer's state is there twice",
    why=(
        "torch.load with a CUDA map_location puts the file's state on the GPU, and load_state_dict copies it into the "
        "optimizer's own. A run that used to fit then stops where it resumes."
    ),
    needs=(Need("a run that resumes from a checkpoint", _resumes),),
    thresholds=(TWICE,),
    remedies=(Remedy('torch.load(..., map_location="cpu") before load_state_dict', "none"),),
    check=check,
)
