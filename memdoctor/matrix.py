"""The probe matrix of a diagnosis: the target, and the target with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from memdoctor.records import Change, Precision, Workload

SMALL_BATCHES = (1, 2)
LENGTHS = (128, 256, 512)
BF16_CAPABILITY = (8, 0)  # the first with bf16 tensor cores


def toggles_of(workload: Workload, capability: tuple[int, int], longest: int | None) -> tuple[Change, ...]:
    """What to change, one entry a probe: small batches, lengths, precision, checkpointing, and the last two together.

    ``longest`` is the most tokens that the model takes (``None``: no limit).
    """
    changes = (*_batches(), *_lengths(longest), *_precisions(workload, capability), *_checkpointing(workload))
    return tuple(change for change in changes if apply_change(workload, change) != workload)


def apply_change(workload: Workload, change: Change) -> Workload:
    """The workload with the change applied."""
    fields: dict[str, Any] = dict(change)
    if "precision" in fields:
        fields["precision"] = Precision(fields["precision"])
    return replace(workload, **fields)


def _batches() -> Iterator[Change]:
    for batch in SMALL_BATCHES:
        yield {"batch_size": batch}


def _lengths(longest: int | None) -> Iterator[Change]:
    for length in LENGTHS:
        if longest is None or length <= longest:
            yield {"seq_length": length}


def _precisions(workload: Workload, capability: tuple[int, int]) -> Iterator[Change]:
    yield {"precision": (Precision.FP16 if workload.precision is Precision.FP32 else Precision.FP32).value}
    if capability >= BF16_CAPABILITY:
        yield {"precision": Precision.BF16.value}


def _checkpointing(workload: Workload) -> Iterator[Change]:
    yield {"gradient_checkpointing": not workload.gradient_checkpointing}
    if workload.precision is Precision.FP32 and not workload.gradient_checkpointing:
        yield {"precision": Precision.FP16.value, "gradient_checkpointing": True}
