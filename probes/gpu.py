"""The GPU probe: the real training step on CUDA, its memory from the allocator's own history."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch

from memdoctor.errors import MeasureError, MemdoctorError
from memdoctor.probes import STEPS
from memdoctor.probes.adapting import base_of
from memdoctor.probes.bare import FIRST_SCALE
from memdoctor.probes.card import Card, Held, device_of, held_on, open_card
from memdoctor.probes.cuda_allocator import CudaAllocator
from memdoctor.probes.failures import refusal
from memdoctor.probes.history import Allocator, History, Totals
from memdoctor.probes.job import Job
from memdoctor.probes.joining import join
from memdoctor.probes.models import attention_of
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.notes import notes_of
from memdoctor.probes.preparing import without_collection
from memdoctor.probes.provenance import kernels_in, provenance_of
from memdoctor.probes.real import Subject, batches_on, make_up_weights, real_subject
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.probes.timed import TimedTracker
from memdoctor.probes.timing import seconds_of_step
from memdoctor.probes.tracker import Mark, watching
from memdoctor.probes.watch import TrackingWatch, train_watched
from memdoctor.records import Counters, Device, Examination, PhaseName, Workload

# CUDAException.cpp and CUDABlas.cpp: the driver had no memory for what does not go through the allocator.
_REFUSED_BY_THE_DRIVER = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # of cublasCreate, mostly for want of memory
)


def measure(
    workload: Workload, device: Device, config: Mapping[str, Any], model_source: str, steps: int = STEPS
) -> Examination:
    """Run ``steps`` optimizer steps of ``workload`` on the GPU. Running out of its memory is a result.

    Of ``device`` only the allocator's settings are used, and its context where NVML does not tell. ``config`` and
    ``model_source`` are as for the simulated probe.

    Raises:
        InputError: the model, head, attention or optimizer does not exist.
        MeasureError: there is no GPU that works, or the allocator's history is not whole.
    """
    return examine(CudaAllocator(), _card(), Asked(workload, device, config, model_source, steps))


@cache
def _card() -> Card:
    """Once for a process: what was held before it had a context cannot be read again."""
    return open_card()


@dataclass(frozen=True, slots=True)
class Asked:
    """One run: what to train, for how many steps, and what is known of the device beforehand."""

    workload: Workload
    device: Device
    config: Mapping[str, Any]
    model_source: str
    steps: int


def examine(allocator: Allocator, card: Card, asked: Asked) -> Examination:
    """Run the steps on ``allocator``'s device, which is ``card``.

    Raises:
        InputError, MeasureError: as :func:`measure`.
    """
    started = time.perf_counter()
    subject = real_subject(asked.config, asked.workload)
    subject.model.cpu()  # a factory may have put it on the card already
    workload = replace(asked.workload, attention=attention_of(base_of(subject.model)))
    allocator.begin()
    run = run_watched(allocator, subject, workload, asked.steps)
    held = held_on(card, run.history.totals.reserved_bytes)
    device = device_of(card, held, asked.device)
    recorded = time.perf_counter() - started
    step_seconds = None if run.job is None else seconds_of_step(run.job, allocator, recorded)  # all else was read
    timeline, outcome = join(run.history, run.tracker, parse_alloc_conf(device.alloc_conf), ran_out=run.ran_out)
    notes = (*notes_of(workload, device, subject.model, run.without_gradient), *run.notes, *held.notes)
    provenance = provenance_of(
        "measured", f"{asked.model_source}; {subject.weights}", started, notes=notes, cuda=card.cuda,
        attention_kernels=kernels_in({span.op for span in run.tracker.spans}, workload.attention), driver=card.driver,
    )  # fmt: skip
    counters = _counters(run.history.totals, held)
    return Examination(workload, device, provenance, outcome, timeline, counters, step_seconds=step_seconds)


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen of the steps, all of which is over, and the job as they left it, unless memory ran out."""

    tracker: TimedTracker
    history: History
    ran_out: bool
    without_gradient: Sequence[str]
    notes: tuple[str, ...]
    job: Job | None = None


def run_watched(allocator: Allocator, subject: Subject, workload: Workload, steps: int) -> Watched:
    """Move the model to the device and train it there, all of it watched. The allocator has begun, and ends here.

    Raises:
        MeasureError: the model's code refuses the step, the driver refused memory, or the history is not whole.
    """
    clock = ModuleClock()
    tracker = TimedTracker(allocator, clock)
    try:
        job, watch = _train(allocator, subject, workload, steps, tracker, clock)
        history = allocator.end()  # while the job holds all that the step left
        return Watched(tracker, history, False, watch.without_gradient or (), _skipped(job.scaler), job)
    except Exception as error:
        if not _is_out_of_memory(error):
            with suppress(Exception):  # what went wrong first is what is told
                allocator.end()
            if isinstance(error, MemdoctorError):
                raise
            raise _refused_elsewhere(error) or _of_cuda(error) or refusal(error) or error from error
    tracker.finish()
    return Watched(tracker, _end_after_refusal(allocator), True, (), ())


def _end_after_refusal(allocator: Allocator) -> History:
    try:
        return allocator.end()
    except RuntimeError as error:
        raise _of_cuda(error) or error from error


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether the allocator refused memory, and the model's code may have wrapped that into an error of its own."""
    while error is not None and not isinstance(error, torch.OutOfMemoryError):
        error = error.__cause__ or error.__context__
    return error is not None


def _train(
    allocator: Allocator, subject: Subject, workload: Workload, steps: int, tracker: TimedTracker, clock: ModuleClock
) -> tuple[Job, TrackingWatch]:
    """The steps themselves. What they leave lives as long as the job."""
    torch.manual_seed(0)
    model = subject.model
    with without_collection(), tracker, watching(tracker, clock, model):
        tracker.begin(0, PhaseName.SETUP)
        model._apply(partial(_moved, allocator, tracker))  # what model.to(device) does
        if subject.made_up:
            make_up_weights(model)
        next_batch = batches_on(allocator.device, workload, subject.batches)
        kind = allocator.device.type
        return train_watched(workload, model, kind, next_batch, steps, tracker, clock, first_scale=FIRST_SCALE)


def _moved(allocator: Allocator, tracker: TimedTracker, tensor: torch.Tensor) -> torch.Tensor:
    moved = allocator.put(tensor)
    tracker.mark(moved, Mark.PARAMETER if isinstance(tensor, torch.nn.Parameter) else Mark.BUFFER)
    return moved


def _refused_elsewhere(error: Exception) -> MeasureError | None:
    """Memory that a library of CUDA's asked the driver for, past the allocator, and did not get."""
    told = str(error)
    if not any(words in told for words in _REFUSED_BY_THE_DRIVER):
        return None
    return MeasureError(
        "the GPU ran out of memory beside PyTorch's allocator",
        why=" ".join(told.split()),
        hint="a smaller --batch-size leaves room for CUDA's libraries",
    )


def _of_cuda(error: Exception) -> MeasureError | None:
    """An error of the device. Kernels run behind the code, so it may come up where nobody did anything wrong."""
    if not isinstance(error, torch.AcceleratorError) and not str(error).startswith(("CUDA error:", "cuDNN error:")):
        return None
    why = " ".join(str(error).split())
    hint = "CUDA_LAUNCH_BLOCKING=1 in the environment tells where"
    return MeasureError("CUDA failed in the training step", why=why, hint=hint)


def _skipped(scaler: torch.amp.GradScaler) -> tuple[str, ...]:
    if not scaler.is_enabled() or scaler.get_scale() >= FIRST_SCALE:
        return ()
    return ("gradients overflowed in fp16, and an optimizer step was left out: its state may be missing in the first",)


def _counters(totals: Totals, held: Held) -> Counters:
    return Counters(
        max_memory_allocated_bytes=totals.peak_allocated_bytes, max_memory_reserved_bytes=totals.peak_reserved_bytes,
        memory_allocated_bytes=totals.allocated_bytes, memory_reserved_bytes=totals.reserved_bytes,
        process_bytes=held.process_bytes, listed_bytes=held.listed_bytes, used_bytes=held.used_bytes,
    )  # fmt: skip
