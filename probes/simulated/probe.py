"""The simulated probe: the real training step on a GPU that is not there, its memory to the byte."""

from __future__ import annotations

import gc
import platform
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from memdoctor import __version__
from memdoctor.errors import MeasureError, MemdoctorError
from memdoctor.probes import STEPS, user_models
from memdoctor.probes.adapting import adapt, base_of
from memdoctor.probes.attribution import category_of
from memdoctor.probes.batches import make_batch
from memdoctor.probes.job import Batch, Job
from memdoctor.probes.models import attention_of, build_model
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.moving import move, replace_tensors
from memdoctor.probes.notes import notes_of
from memdoctor.probes.optimizers import build_optimizer, state_tensors, updates_in_backward
from memdoctor.probes.resolve import FACTORY_KEY
from memdoctor.probes.simulated import composites, device as simulated_device, known
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.probes.simulated.allocator.replay import Replay, replay
from memdoctor.probes.simulated.attention import SimulatedAttention
from memdoctor.probes.simulated.autocast import SimulatedAutocast
from memdoctor.probes.simulated.kernels.registry import scratch_of_kernels
from memdoctor.probes.simulated.optimizers import standing_in
from memdoctor.probes.simulated.processors import processors_of
from memdoctor.probes.simulated.workspaces import CublasWorkspaces, cublas_workspace_bytes
from memdoctor.probes.step import train
from memdoctor.probes.tracker import Mark, Tracker, watching
from memdoctor.records import (
    Block,
    Completed,
    Device,
    Examination,
    Loop,
    Outcome,
    PhaseName,
    Precision,
    Provenance,
    RanOut,
    SegmentEvent,
    Timeline,
    Workload,
)  # fmt: skip

Batches = Callable[[Workload, int], Batch]
"""Makes the real CPU tensors of a batch for a workload and a seed."""

_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent.parent)
_AUTOCAST_DTYPES = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}
# The random state of memory-efficient attention stays on the host unless a CUDA graph is captured (attention.cu).
_HOST_OUTPUTS = {torch.ops.aten._scaled_dot_product_efficient_attention.default: (2, 3)}


def simulate(
    workload: Workload, device: Device, config: Mapping[str, Any], model_source: str, steps: int = STEPS
) -> Examination:
    """Run ``steps`` optimizer steps of ``workload`` on a simulated ``device``.

    ``config`` holds the facts of the model's config.json, ``model_source`` says where they are from.

    Raises:
        InputError: the model, head, attention or optimizer does not exist.
        MeasureError: this torch cannot host a simulated GPU, or the model's code asks for data.
    """
    started = time.perf_counter()
    gpu = _gpu()
    subject = _subject(config, workload)
    workload = replace(workload, attention=attention_of(base_of(subject.model)))
    recording = record(workload, device, subject.model, subject.fake, subject.batches, steps)
    provenance = Provenance(
        mode="simulated", memdoctor=__version__, torch=torch.__version__, transformers=transformers.__version__,
        python=platform.python_version(), created=datetime.now(UTC).isoformat(timespec="seconds"),
        model_source=model_source, attention_kernels=tuple(sorted(gpu.attention.chosen)) or ("eager",),
        seconds=round(time.perf_counter() - started, 3),
        notes=notes_of(workload, device, subject.model, recording.without_gradient),
    )  # fmt: skip
    return Examination(workload, device, provenance, recording.outcome, recording.timeline)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is trained: a model of fake tensors on the host, and real batches for it."""

    model: torch.nn.Module
    fake: FakeTensorMode
    batches: Batches


def _subject(config: Mapping[str, Any], workload: Workload) -> _Subject:
    if FACTORY_KEY in config:
        made = user_models.load(config[FACTORY_KEY], workload)
        fake = FakeTensorMode(allow_non_fake_inputs=True)  # modules may hold tensors that are neither of their own
        replace_tensors(made.module, fake.from_tensor)
        with fake:
            return _Subject(adapt(made.module, workload), fake, made.batches)
    with FakeTensorMode() as fake:
        model = adapt(build_model(config, workload), workload)
    inner = base_of(model)
    return _Subject(model, fake, partial(make_batch, inner, inner.config))


@dataclass(frozen=True, slots=True)
class Recording:
    """What was seen of a run, and the parameters that are trained and got no gradient."""

    timeline: Timeline
    outcome: Outcome
    without_gradient: tuple[str, ...]


def record(
    workload: Workload,
    device: Device,
    model: torch.nn.Module,
    fake: FakeTensorMode,
    batches: Batches,
    steps: int = STEPS,
) -> Recording:
    """Move ``model`` from the host to a simulated ``device`` and train it there, all of it watched.

    The model's parameters are fake tensors of ``fake`` on the CPU; called with a batch it returns a loss, or what
    holds one. ``batches(workload, number)`` gives the real CPU tensors of one batch. Of ``workload``, what concerns
    the training loop is used; the model is taken as it is.

    Raises:
        MeasureError: the model's code refuses the step or asks for data.
    """
    gpu = _gpu()
    gpu.attention.begin(device.capability)
    clock = ModuleClock()
    cublas = CublasWorkspaces(cublas_workspace_bytes(device.capability))
    kernels = scratch_of_kernels(device.capability, processors_of(device.name, device.capability))
    tracker = Tracker(gpu.device.type, clock, cublas.after_op, _HOST_OUTPUTS, kernels)
    gpu.autocast.on_copy = lambda copy: tracker.mark(copy, Mark.AUTOCAST_COPY)
    with (
        _no_collection(), standing_in(workload.optimizer, gpu.device), fake, tracker, known.KnownValues(tracker),
        watching(tracker, clock, model),
    ):  # fmt: skip
        tracker.begin(0, PhaseName.SETUP)
        move(model, gpu.device)
        _mark_model(model, tracker)
        if updates_in_backward(workload.optimizer):
            _mark_gradients_at_birth(model, tracker)
        job = _job(workload, model, fake, gpu, batches)
        watch = _Watch(tracker, clock, job.scaler)
        if updates_in_backward(workload.optimizer):
            watch.without_gradient = []  # they are gone by then
        try:
            train(job, watch, steps)
        except MemdoctorError:
            raise
        except Exception as error:
            refused = _refusal(error)
            if refused is None:
                raise
            raise refused from error
        tracker.finish()
    timeline, outcome = _with_allocator(tracker, device)
    return Recording(timeline, outcome, tuple(watch.without_gradient or ()))


def _refusal(error: Exception) -> MeasureError | None:
    """An error of the model's code, or of torch when the model called it; ``None`` where it is ours.

    Between the model and torch lie our dispatch modes: an error that comes out of torch through them is the model's.
    """
    lines = traceback.extract_tb(error.__traceback__)
    theirs = [line for line in lines if not line.filename.startswith((_TORCH, _OWN))]
    if not theirs or lines[-1].filename.startswith(_OWN):
        return None
    what = f"the model's code refuses the training step, at {Path(theirs[-1].filename).name}:{theirs[-1].lineno}"
    return MeasureError(what, why=" ".join(f"{type(error).__name__}: {error}".split()))


@dataclass(slots=True)
class _Gpu:
    """What is registered with this process's PyTorch, once."""

    device: torch.device
    attention: SimulatedAttention
    autocast: SimulatedAutocast
    composites: Any


@cache
def _gpu() -> _Gpu:
    torch_device = simulated_device.register()
    attention = SimulatedAttention()
    attention.install("AutogradPrivateUse1")
    autocast = SimulatedAutocast(torch_device.type)
    autocast.install()
    # transformers passes over data-dependent shortcuts when it sees a fake tensor; a real run takes them.
    transformers.utils.import_utils.is_fake_tensor = lambda x: False
    return _Gpu(torch_device, attention, autocast, composites.install("AutogradPrivateUse1"))


def _job(
    workload: Workload,
    model: torch.nn.Module,
    fake: FakeTensorMode,
    gpu: _Gpu,
    batches: Batches,
) -> Job:
    numbers = count(1)

    def next_batch(rows: int) -> Batch:
        with _disable_current_modes():
            real = batches(replace(workload, batch_size=rows), next(numbers))
        return {name: _on_gpu(value, fake, gpu.device) for name, value in real.items()}

    def autocast() -> AbstractContextManager[Any]:
        dtype = _AUTOCAST_DTYPES.get(workload.precision)
        return torch.autocast(gpu.device.type, dtype=dtype) if dtype else nullcontext()

    scaler = torch.amp.GradScaler(gpu.device.type, enabled=workload.precision is Precision.FP16)
    optimizer = build_optimizer(
        workload.optimizer, model, optim_args=workload.optim_args, target_modules=workload.optim_target_modules,
        gradient_accumulation_steps=workload.gradient_accumulation_steps, loss_scaling=scaler.is_enabled(),
        grouped=workload.loop is Loop.TRAINER,
    )  # fmt: skip
    return Job(workload, model, optimizer, next_batch, autocast, scaler)


def _on_gpu(value: torch.Tensor, fake: FakeTensorMode, torch_device: torch.device) -> torch.Tensor:
    moved = fake.from_tensor(value).to(torch_device)
    if not value.is_floating_point():
        known.remember(moved, value)
    return moved


def _mark_model(model: torch.nn.Module, tracker: Tracker) -> None:
    for parameter in model.parameters():
        tracker.mark(parameter, Mark.PARAMETER)
    for buffer in model.buffers():
        tracker.mark(buffer, Mark.BUFFER)


def _mark_gradients_at_birth(model: torch.nn.Module, tracker: Tracker) -> None:
    """For optimizers that consume a gradient before backward has ended."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda p: tracker.mark(p.grad, Mark.GRADIENT))


@dataclass(slots=True)
class _Watch:
    """Tells the tracker what the training step shows of phases and owners."""

    tracker: Tracker
    clock: ModuleClock
    scaler: torch.amp.GradScaler
    without_gradient: list[str] | None = None  # after the first backward

    def begin(self, step: int, name: PhaseName) -> None:
        self.clock.leave()
        self.tracker.begin(step, name)

    def inputs(self, batch: Batch) -> None:
        for tensor in batch.values():
            self.tracker.mark(tensor, Mark.INPUT)

    def gradients(self, model: torch.nn.Module) -> None:
        missing = []
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                self.tracker.mark(parameter.grad, Mark.GRADIENT)
            elif parameter.requires_grad:
                missing.append(name)
        if self.without_gradient is None:
            self.without_gradient = missing
        for name in ("_scale", "_growth_tracker"):  # a scaler that is off has neither
            kept = getattr(self.scaler, name, None)
            if isinstance(kept, torch.Tensor):
                self.tracker.mark(kept, Mark.BUFFER)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> None:
        for tensor in state_tensors(optimizer):
            self.tracker.mark(tensor, Mark.OPTIMIZER_STATE)

    def empty_cache(self) -> None:
        self.tracker.empty_cache()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's cyclic collector runs when it likes; without it the same workload gives the same bytes."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _with_allocator(tracker: Tracker, device: Device) -> tuple[Timeline, Outcome]:
    """Replay on this card; where that runs out, once more without a limit, to show what it would have taken."""
    settings, clears = parse_alloc_conf(device.alloc_conf), tracker.cache_clears
    limited = replay(
        tracker.events, settings, device.allocator_limit_bytes, empty_cache_at=clears, device_bytes=device.total_bytes
    )
    if limited.ran_out is None:
        return _timeline(tracker, limited), Completed()
    full = limited.ran_out
    outcome = RanOut(
        requested_bytes=full.requested_bytes, free_bytes=full.free_bytes, event=full.event,
        segment_bytes=full.segment_bytes, allocated_bytes=full.allocated_bytes, reserved_bytes=full.reserved_bytes,
    )  # fmt: skip
    return _timeline(tracker, replay(tracker.events, settings, empty_cache_at=clears)), outcome


def _timeline(tracker: Tracker, replayed: Replay) -> Timeline:
    allocated: dict[int, tuple[int, int]] = {}
    before = 0
    for event, address, after in zip(tracker.events, replayed.addresses, replayed.allocated, strict=True):
        if event.delta_bytes > 0:
            allocated[event.block] = (after - before, address)
        before = after
    blocks = tuple(
        Block(
            bytes=draft.bytes, category=category_of(draft), module=draft.module, op=draft.op, dtype=draft.dtype,
            shape=draft.shape, allocated_bytes=allocated[index][0], address=allocated[index][1],
        )
        for index, draft in enumerate(tracker.blocks)
    )  # fmt: skip
    segments = tuple(SegmentEvent(item.event, item.delta_bytes) for item in replayed.segment_events)
    return Timeline(blocks, tuple(tracker.events), tuple(tracker.phases), segments, tuple(tracker.cache_clears))
