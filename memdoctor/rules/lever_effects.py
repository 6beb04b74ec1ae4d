"""Levers in findings: what those that were probed do here, and which remedies are not pulled already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from memdoctor.records import Lever, Precision, Workload
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import possible
from memdoctor.rules.rule import Remedy
from memdoctor.units import format_bytes


def probed_effects(evidence: Evidence, *names: str) -> str:
    """``; probed: checkpointing saves 1.00 GiB, batch changes nothing``, or nothing where none of them was probed."""
    levers = [lever for name in names if (lever := evidence.lever(name)) and lever.status == "probed"]
    told = [f"{lever.name} {effect}" for lever in levers if (effect := _effect(lever))]
    return f"; probed: {', '.join(told)}" if told else ""


def _effect(lever: Lever) -> str:
    if lever.saves_bytes is None:
        return ""
    if lever.saves_bytes == 0:
        return "changes nothing"
    verb = "saves" if lever.saves_bytes > 0 else "costs"
    return f"{verb} {format_bytes(abs(lever.saves_bytes))} of what is reserved"


_IN_USE: Mapping[str, Callable[[Workload], bool]] = {
    "8-bit optimizer": lambda workload: "8bit" in workload.optimizer,
    "Adafactor": lambda workload: workload.optimizer == "adafactor",
    "SGD": lambda workload: workload.optimizer == "sgd",
    "fused optimizer": lambda workload: workload.optimizer.endswith("_fused"),
    "LoRA": lambda workload: workload.lora_rank > 0,
    "freezing": lambda workload: bool(workload.freeze),
    "checkpointing": lambda workload: workload.gradient_checkpointing,
    "fp16": lambda workload: workload.precision is not Precision.FP32,
    "batch": lambda workload: workload.batch_size == 1,
    "eval_accumulation": lambda workload: workload.eval_accumulation_steps is not None,
}


def still_open(evidence: Evidence, remedies: Iterable[Remedy]) -> tuple[Remedy, ...]:
    """The remedies that this card allows, whose lever the target does not pull already, as far as its settings tell.

    Those that were probed to save nothing are none either, unless there is no other.
    """
    unused = tuple(
        remedy
        for remedy in possible(evidence, remedies)
        if remedy.lever not in _IN_USE or not _IN_USE[remedy.lever](evidence.workload)
    )
    return tuple(remedy for remedy in unused if not _saves_nothing(evidence.lever(remedy.lever))) or unused


def _saves_nothing(lever: Lever | None) -> bool:
    return lever is not None and lever.status == "probed" and lever.saves_bytes is not None and lever.saves_bytes <= 0
