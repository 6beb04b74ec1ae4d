"""What a user should know beside the bytes: what the card does slowly, what is not trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from memdoctor.records import Device, Dtype, Precision, Workload

# CUDA C++ Programming Guide, arithmetic instructions by compute capability.
FP16_ARITHMETIC = (5, 3)
FP16_TENSOR_CORES = (7, 0)
BF16_ARITHMETIC = (8, 0)


def notes_of(
    workload: Workload, device: Device, model: torch.nn.Module, without_gradient: Sequence[str]
) -> tuple[str, ...]:
    """Sentences for the report. ``without_gradient``: parameters that are trained and got no gradient."""
    return (*_precision(workload, device), *_allocator(device), *training_notes(workload, model, without_gradient))


def _precision(workload: Workload, device: Device) -> Iterator[str]:
    capability = device.capability
    card = f"{device.name} (compute capability {device.compute_capability})"
    half = {workload.precision.value, workload.dtype.value}
    if half & {Precision.BF16.value, Dtype.BFLOAT16.value} and capability < BF16_ARITHMETIC:
        yield f"{card} has no bf16 arithmetic: PyTorch emulates it, slowly, in the memory shown"
    if half & {Precision.FP16.value, Dtype.FLOAT16.value}:
        if capability < FP16_ARITHMETIC:
            yield f"{card} has no fp16 arithmetic: fp16 saves memory and no time"
        elif capability < FP16_TENSOR_CORES:
            yield f"{card} has no tensor cores: fp16 saves memory and little or no time"


def _allocator(device: Device) -> Iterator[str]:
    if "garbage_collection_threshold" in device.alloc_conf:
        yield "garbage_collection_threshold does nothing without a memory fraction, here as in PyTorch"


def training_notes(workload: Workload, model: torch.nn.Module, without_gradient: Sequence[str]) -> Iterator[str]:
    """What is trained otherwise than it seems."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if without_gradient:
        reason = "reentrant checkpointing cuts off what lies before the first input that requires a gradient: "
        why = reason if workload.gradient_checkpointing and workload.use_reentrant else ""
        yield (
            f"{why}{len(without_gradient)} of {len(trained)} trained tensors get no gradient and are not trained, "
            f"first {without_gradient[0]}"
        )
    if workload.lora_rank:
        count, everything = (sum(p.numel() for p in group) for group in (trained, model.parameters()))
        yield f"LoRA trains {count:,} of {everything:,} parameters"
