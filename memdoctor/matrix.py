"""The probe matrix of a diagnosis: the target, and the target with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memdoctor.codec import from_json, to_json
from memdoctor.records import Change, Device, Dtype, Precision, Workload

SMALL_BATCHES = (1, 2)
LENGTHS = (128, 256, 512)
BF16_CAPABILITY = (8, 0)  # the first with bf16 tensor cores
FP16_CAPABILITY = (5, 3)  # the first that computes in fp16 (CUDA programming guide, arithmetic instructions)
UPDATES_IN_BACKWARD = ("lomo", "adalomo")
"""Optimizers whose ``fused_backward`` updates the weights with each micro-batch, so that nothing accumulates
(accelerate, ``Accelerator.lomo_backward``)."""
ALLOC_CONF = "cuda_alloc_conf"  # of a change: settings of the allocator, which are the device's


def toggles_of(workload: Workload, capability: tuple[int, int], longest: int | None) -> tuple[Change, ...]:
    """What to change, one entry a probe: small batches, lengths, precision, checkpointing, and the last two together.

    ``longest`` is the most tokens that the model takes (``None``: no limit). Where there is evaluation, also what
    moves its predictions to the host.
    """
    changes = (
        *_batches(), *_lengths(longest), *_precisions(workload, capability), *_checkpointing(workload),
        *_evaluation(workload),
    )  # fmt: skip
    return tuple(change for change in changes if apply_change(workload, change) != workload)


def apply_change(workload: Workload, change: Change) -> Workload:
    """The workload with the change applied.

    Raises:
        ValueError: no such field, or a value that it cannot have.
    """
    settings = to_json(workload)
    if unknown := change.keys() - settings.keys():
        raise ValueError(f"a Workload has no {', '.join(sorted(unknown))}")
    return from_json(Workload, {**settings, **change})


def apply_to(workload: Workload, device: Device, change: Change) -> tuple[Workload, Device]:
    """The workload and the card with the change applied: it may name settings of the allocator too.

    Raises:
        ValueError: as :func:`apply_change`.
    """
    of_workload = {name: value for name, value in change.items() if name != ALLOC_CONF}
    conf = str(change.get(ALLOC_CONF, device.alloc_conf))
    return apply_change(workload, of_workload), replace(device, alloc_conf=conf)


def _batches() -> Iterator[Change]:
    for batch in SMALL_BATCHES:
        yield {"batch_size": batch}


def _lengths(longest: int | None) -> Iterator[Change]:
    for length in LENGTHS:
        if longest is None or length <= longest:
            yield {"seq_length": length}


def _precisions(workload: Workload, capability: tuple[int, int]) -> Iterator[Change]:
    if workload.dtype is not Dtype.FLOAT32:  # autocast over 16-bit weights changes little
        yield {"dtype": Dtype.FLOAT32.value}
        return
    yield {"precision": (Precision.FP16 if workload.precision is Precision.FP32 else Precision.FP32).value}
    if capability >= BF16_CAPABILITY:
        yield {"precision": Precision.BF16.value}


def _checkpointing(workload: Workload) -> Iterator[Change]:
    yield {"gradient_checkpointing": not workload.gradient_checkpointing}
    full = workload.precision is Precision.FP32 and workload.dtype is Dtype.FLOAT32
    if full and not workload.gradient_checkpointing:
        yield {"precision": Precision.FP16.value, "gradient_checkpointing": True}


def _evaluation(workload: Workload) -> Iterator[Change]:
    if workload.evaluate:
        yield {"eval_accumulation_steps": 1}
