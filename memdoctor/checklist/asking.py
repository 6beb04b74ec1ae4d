"""What the checklist asks to be probed beside the matrix and the levers, when the target does not fit."""

from __future__ import annotations

from collections.abc import Iterator

from memdoctor.checklist.looking import changing, probed, runs
from memdoctor.matrix import BF16_CAPABILITY
from memdoctor.records import Change, Device, Dtype, Precision, Workload
from memdoctor.rules import Evidence
from memdoctor.rules.precision.md403_not_in_hardware import FP16_ARITHMETIC, FP16_TENSOR_CORES

MINIMAL_BATCH, MINIMAL_ACCUMULATION = 2, 8  # step 3 of the checklist
FALLBACK_ACCUMULATION = 4  # step 4a

ONE: Change = {"batch_size": 1}
FALLBACK: Change = {"batch_size": 1, "gradient_accumulation_steps": FALLBACK_ACCUMULATION}
MICRO: Change = {"gradient_accumulation_steps": 1}


def in_hardware(capability: tuple[int, int]) -> tuple[Precision | None, str]:
    """The 16 bits that a card of this compute capability is to use, ``None`` where it computes in none; and why."""
    version = capability[0] + capability[1] / 10
    if capability >= BF16_CAPABILITY:
        return Precision.BF16, f"bf16 is in hardware from {BF16_CAPABILITY[0]}.{BF16_CAPABILITY[1]} on"
    if version >= FP16_TENSOR_CORES.value:
        return Precision.FP16, f"tensor cores for fp16 come with {FP16_TENSOR_CORES.value}, bf16 with 8.0"
    if version >= FP16_ARITHMETIC.value:
        return Precision.FP16, f"fp16 comes with {FP16_ARITHMETIC.value}, without tensor cores: memory, little time"
    return None, f"fp16 arithmetic comes with {FP16_ARITHMETIC.value}"


def half(workload: Workload) -> Change:
    """One sample of half the length."""
    return {"batch_size": 1, "seq_length": max(workload.seq_length // 2, 1)}


def minimal(workload: Workload, device: Device) -> Change:
    """The configuration that should work: a batch of 2 (or fewer), accumulation, checkpointing, mixed precision.

    The last only on a card that computes in 16 bits.
    """
    cast: Change = {}
    if workload.precision is Precision.FP32 and workload.dtype is Dtype.FLOAT32:
        kind, _ = in_hardware(device.capability)
        cast = {} if kind is None else {"precision": kind.value}
    return {
        "batch_size": min(MINIMAL_BATCH, workload.batch_size),
        "gradient_accumulation_steps": MINIMAL_ACCUMULATION,
        "gradient_checkpointing": True,
        **cast,
    }


def unchecked(workload: Workload, device: Device) -> Change:
    """The minimal configuration with checkpointing off once."""
    return {**minimal(workload, device), "gradient_checkpointing": False}


def asks(evidence: Evidence) -> tuple[Change, ...]:
    """The probes that the checklist asks for next; none where the target fits, or all was probed.

    To be asked again when these are there: switching checkpointing off once rests on what the minimal configuration
    showed. At most three are asked for in all.
    """
    if evidence.fits:
        return ()
    wanted = _next(evidence)
    return tuple(change for change in wanted if changing(evidence, change) and probed(evidence, change) is None)


def _next(evidence: Evidence) -> Iterator[Change]:
    workload, device = evidence.workload, evidence.device
    yield minimal(workload, device)
    smallest = probed(evidence, minimal(workload, device))
    if smallest is not None and not runs(smallest):
        yield unchecked(workload, device)
    one = probed(evidence, ONE)
    if one is not None:
        yield FALLBACK if runs(one) else half(workload)
