"""MD204: activation checkpointing was asked for, and the step is the same without it."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.records import Examination, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Need, Remedy, Rule
from memdoctor.units import format_bytes

WITHOUT = {"gradient_checkpointing": False}


def _without(evidence: Evidence) -> str | None:
    if not evidence.workload.gradient_checkpointing or evidence.changed(WITHOUT) is not None:
        return None
    return "the target was not probed without checkpointing"


def check(evidence: Evidence) -> Finding | None:
    """Every birth and death is the same with and without the setting."""
    without = evidence.changed(WITHOUT)
    if not evidence.workload.gradient_checkpointing or without is None:
        return None
    if _deltas(without) != _deltas(evidence.examination):
        return None
    return RULE.finding(
        "warning",
        f"with and without checkpointing the step is the same, birth by birth ({len(_deltas(without))} of them and "
        f"of deaths): {format_bytes(peak_of(without).reserved_bytes)} reserved both times, and "
        f"{format_bytes(evidence.breakdown.activations)} of activations at the peak",
        {"reserved_bytes": peak_of(without).reserved_bytes, "activations_bytes": evidence.breakdown.activations},
        at_stake_bytes=evidence.breakdown.activations,
    )


def _deltas(examination: Examination) -> list[int]:
    return [event.delta_bytes for event in examination.timeline.events]


RULE = Rule(
    id="MD204",
    title="Activation checkpointing is asked for, and ignored",
    why=(
        "The switch reaches only layers that are made for it. A model whose layers are not, one whose layers are all "
        "frozen, or one in eval mode (transformers checkpoints in training mode alone) takes the setting and does "
        "nothing with it."
    ),
    needs=(Need("where checkpointing is on, a probe without it", _without),),
    remedies=(
        Remedy("model.train(), and the model's own layers made GradientCheckpointingLayer", "time", "checkpointing"),
        Remedy("torch.utils.checkpoint.checkpoint around the layers, in the model's own code", "time"),
    ),
    check=check,
)
