"""What several views say in the same words: the setting, the peak as a sum, and how it grows with the batch."""

from __future__ import annotations

from memdoctor.records import Diagnosis, Dtype, Loop, Precision, RanOutAt, Scaling, Workload
from memdoctor.scaling import LARGEST_BATCH
from memdoctor.units import MIB, format_bytes


def setting_of(diagnosis: Diagnosis) -> str:
    """What was probed, on what, and how the figures were obtained."""
    workload, device = diagnosis.workload, diagnosis.device
    kernels = ", ".join(diagnosis.provenance.attention_kernels)
    attention = workload.attention.value if workload.attention else f"{kernels} attention"
    words = [
        f"{workload.model} ({workload.task.value})", f"batch {workload.batch_size} x {workload.seq_length}",
        precision_of(workload), workload.optimizer,
        attention if workload.attention is None or kernels == attention else f"{attention} ({kernels})",
        *extras_of(workload, device.alloc_conf), f"on {device.name} with {format_bytes(device.total_bytes)}",
    ]  # fmt: skip
    where = " on the CPU" if device.is_cpu else ""
    return f"{', '.join(words)}; {diagnosis.provenance.mode}{where}"


def precision_of(workload: Workload) -> str:
    """``fp16`` is autocast over fp32 weights; weights in 16 bits are named."""
    if workload.dtype is Dtype.FLOAT32:
        return workload.precision.value
    autocast = "" if workload.precision is Precision.FP32 else f" under {workload.precision.value} autocast"
    return f"{workload.dtype.value} weights{autocast}"


def extras_of(workload: Workload, alloc_conf: str) -> list[str]:
    """What is out of the ordinary, in a few words each."""
    every = f" every {workload.every_n_layers} layers" if workload.every_n_layers > 1 else ""
    kind = " (reentrant)" if workload.use_reentrant else ""
    words = {
        f"checkpointing{every}{kind}": workload.gradient_checkpointing,
        "padded": workload.padded,
        f"{workload.gradient_accumulation_steps} micro-batches": workload.gradient_accumulation_steps > 1,
        f"{workload.forward_passes} forward passes": workload.forward_passes > 1,
        f"LoRA rank {workload.lora_rank}": workload.lora_rank > 0,
        f"{', '.join(workload.freeze)} frozen": bool(workload.freeze),
        f"label smoothing {workload.label_smoothing_factor:g}": workload.label_smoothing_factor > 0,
        "loop by hand": workload.loop is Loop.CUSTOM,
        f"evaluating {workload.eval_samples} samples by {workload.eval_batch_size}": workload.evaluate,
        alloc_conf: bool(alloc_conf),
    }
    return [text for text, applies in words.items() if applies]


def where_it_ran_out(at: RanOutAt) -> str:
    """With the figures of PyTorch's message, which is in the JSON."""
    asked, free = format_bytes(at.segment_bytes or at.requested_bytes), format_bytes(at.free_bytes)
    place = f"step {at.step}, {at.phase}, {at.module or at.op}: tried to allocate {asked} with {free} free"
    if at.allocated_bytes is None or at.reserved_bytes is None:
        return place
    unallocated = format_bytes(at.reserved_bytes - at.allocated_bytes)
    return f"{place}; {format_bytes(at.allocated_bytes)} allocated, {unallocated} reserved but unallocated"


def peak_sum(diagnosis: Diagnosis, plus_minus: str = "±") -> str:
    """The peak as a sum: reserved, the context with its band, and other processes."""
    peak, device = diagnosis.peak, diagnosis.device
    if device.is_cpu:
        tensors, before = format_bytes(peak.allocated_bytes), format_bytes(device.context_bytes)
        together = format_bytes(peak.allocated_bytes + device.context_bytes)
        return f"{tensors} of tensors + {before} that the process held before = {together}"
    context, error = device.context_bytes / MIB, device.context_error_bytes / MIB
    others = f"+ {format_bytes(device.other_processes_bytes)} of others " if device.other_processes_bytes else ""
    return (
        f"{format_bytes(peak.reserved_bytes)} reserved ({format_bytes(peak.allocated_bytes)} allocated) "
        f"+ context {context:.0f} {plus_minus} {error:.0f} MiB {others}= {format_bytes(peak.device_bytes)}"
    )


def prediction_beside_probe(scaling: Scaling) -> str:
    """What was predicted of the target from small batches, and what it was probed to take."""
    check = scaling.check
    first, second = scaling.from_batches
    return (
        f"{check.batch_size} from {first} and {second}: {format_bytes(check.predicted_allocated_bytes)} predicted, "
        f"{format_bytes(check.probed_allocated_bytes)} probed, difference {format_bytes(check.difference_bytes)}"
    )


def growth_with_batch(scaling: Scaling) -> str:
    """Bytes a sample, and the largest batch that fits."""
    most = scaling.largest_batch_that_fits
    in_evaluation = any(p.phase == "evaluation" for p in scaling.predicted if p.batch_size == scaling.check.batch_size)
    if in_evaluation and most is None:
        return "no training batch makes evaluation fit: it keeps the predictions of all samples"
    fits = "no batch fits" if most is None else f"the largest that fits is {most} (predicted)"
    if most == LARGEST_BATCH:
        fits = f"even {most:,} fits (predicted)"
    return f"{format_bytes(scaling.per_sample_bytes)} a sample in that phase; {fits}"
