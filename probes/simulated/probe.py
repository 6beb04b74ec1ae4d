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
from memdoctor.errors import MeasureError
from memdoctor.probes import STEPS
from memdoctor.probes.attribution import category_of
from memdoctor.probes.batches import make_batch
from memdoctor.probes.models import attention_of, build_model, move
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.optimizers import build_optimizer
from memdoctor.probes.simulated import composites, device as simulated_device, known
from memdoctor.probes.simulated.allocator.replay import Replay, replay
from memdoctor.probes.simulated.attention import SimulatedAttention
from memdoctor.probes.simulated.autocast import SimulatedAutocast
from memdoctor.probes.simulated.kernels.registry import scratch_of_kernels
from memdoctor.probes.simulated.processors import processors_of
from memdoctor.probes.simulated.workspaces import CublasWorkspaces, cublas_workspace_bytes
from memdoctor.probes.step import Batch, Job, train
from memdoctor.probes.tracker import Mark, Tracker, watching
from memdoctor.records import (
    Attention,
    Block,
    Completed,
    Device,
    Examination,
    Outcome,
    PhaseName,
    Precision,
    Provenance,
    RanOut,
    SegmentEvent,
    Timeline,
    Workload,
)  # fmt: skip

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
    with FakeTensorMode() as fake:
        model = build_model(config, workload)
    workload = replace(workload, attention=attention_of(model))
    batches = partial(make_batch, model, model.config, workload)
    timeline, outcome = record(workload, device, model, fake, batches, steps)
    kernels = gpu.attention.chosen if workload.attention is Attention.SDPA else {"eager"}
    provenance = Provenance(
        mode="simulated", memdoctor=__version__, torch=torch.__version__, transformers=transformers.__version__,
        python=platform.python_version(), created=datetime.now(UTC).isoformat(timespec="seconds"),
        model_source=model_source, attention_kernels=tuple(sorted(kernels)),
        seconds=round(time.perf_counter() - started, 3),
    )  # fmt: skip
    return Examination(workload, device, provenance, outcome, timeline)


def record(
    workload: Workload,
    device: Device,
    model: torch.nn.Module,
    fake: FakeTensorMode,
    batches: Callable[[int], Mapping[str, torch.Tensor]],
    steps: int = STEPS,
) -> tuple[Timeline, Outcome]:
    """Move ``model`` from the host to a simulated ``device`` and train it there, all of it watched.

    The model's parameters are fake tensors of ``fake`` on the CPU; called with a batch it returns a mapping with
    ``loss``. ``batches(number)`` gives the real CPU tensors of one batch. Of ``workload``, precision, optimizer,
    accumulation and clipping are used.
    """
    gpu = _gpu()
    gpu.attention.begin(device.capability)
    clock = ModuleClock()
    cublas = CublasWorkspaces(cublas_workspace_bytes(device.capability))
    kernels = scratch_of_kernels(device.capability, processors_of(device.name, device.capability))
    tracker = Tracker(gpu.device.type, clock, cublas.after_op, _HOST_OUTPUTS, kernels)
    gpu.autocast.on_copy = lambda copy: tracker.mark(copy, Mark.AUTOCAST_COPY)
    with _no_collection(), fake, tracker, known.KnownValues(tracker), watching(tracker, clock, model):
        tracker.begin(0, PhaseName.SETUP)
        move(model, gpu.device)
        _mark_model(model, tracker)
        job = _job(workload, model, fake, gpu, batches)
        try:
            train(job, _Watch(tracker, clock), steps)
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            if not line.filename.startswith(str(Path(transformers.__file__).parent)):
                raise  # ours; in transformers, it is a config or inputs that the model does not take
            what = f"the model's code refuses the training step, at {Path(line.filename).name}:{line.lineno}"
            raise MeasureError(what, why=" ".join(f"{type(error).__name__}: {error}".split())) from error
        tracker.finish()
    return _with_allocator(tracker, device)


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
    batches: Callable[[int], Mapping[str, torch.Tensor]],
) -> Job:
    numbers = count(1)

    def next_batch() -> Batch:
        with _disable_current_modes():
            real = batches(next(numbers))
        return {name: _on_gpu(value, fake, gpu.device) for name, value in real.items()}

    def autocast() -> AbstractContextManager[Any]:
        dtype = _AUTOCAST_DTYPES.get(workload.precision)
        return torch.autocast(gpu.device.type, dtype=dtype) if dtype else nullcontext()

    scaler = torch.amp.GradScaler(gpu.device.type, enabled=workload.precision is Precision.FP16)
    return Job(workload, model, build_optimizer(workload.optimizer, model), next_batch, autocast, scaler)


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


@dataclass(slots=True)
class _Watch:
    """Tells the tracker what the training step shows of phases and owners."""

    tracker: Tracker
    clock: ModuleClock

    def begin(self, step: int, name: PhaseName) -> None:
        self.clock.leave()
        self.tracker.begin(step, name)

    def inputs(self, batch: Batch) -> None:
        for tensor in batch.values():
            self.tracker.mark(tensor, Mark.INPUT)

    def gradients(self, model: torch.nn.Module) -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                self.tracker.mark(parameter.grad, Mark.GRADIENT)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> None:
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    self.tracker.mark(value, Mark.OPTIMIZER_STATE)


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
    limited = replay(tracker.events, capacity_bytes=device.allocator_limit_bytes)
    if limited.ran_out is None:
        return _timeline(tracker, limited), Completed()
    full = limited.ran_out
    return _timeline(tracker, replay(tracker.events)), RanOut(full.requested_bytes, full.free_bytes, full.event)


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
    return Timeline(blocks, tuple(tracker.events), tuple(tracker.phases), segments)
