"""A model is moved to the simulated GPU and trained there, all of it watched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from memdoctor.errors import MemdoctorError
from memdoctor.probes import STEPS
from memdoctor.probes.failures import refusal
from memdoctor.probes.job import Batch, never
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.moving import move
from memdoctor.probes.preparing import Batches, without_collection
from memdoctor.probes.repeating import Repeats
from memdoctor.probes.simulated import known
from memdoctor.probes.simulated.gpu import Gpu, registered
from memdoctor.probes.simulated.kernels.registry import scratch_of_kernels
from memdoctor.probes.simulated.optimizers import standing_in
from memdoctor.probes.simulated.processors import processors_of
from memdoctor.probes.simulated.timelines import with_allocator
from memdoctor.probes.simulated.workspaces import CublasWorkspaces, cublas_workspace_bytes
from memdoctor.probes.tracker import Mark, Tracker, watching
from memdoctor.probes.watch import train_watched
from memdoctor.records import Device, Outcome, PhaseName, Timeline, Workload

# The random state of memory-efficient attention stays on the host unless a CUDA graph is captured (attention.cu).
_HOST_OUTPUTS = {torch.ops.aten._scaled_dot_product_efficient_attention.default: (2, 3)}


@dataclass(frozen=True, slots=True)
class Recording:
    """What was seen of a run, and the parameters that are trained and got no gradient.

    ``repeated_micro_steps`` of each step are not in the timeline: they would repeat the last one that is.
    """

    timeline: Timeline
    outcome: Outcome
    without_gradient: tuple[str, ...]
    repeated_micro_steps: int = 0


def record(
    workload: Workload,
    device: Device,
    model: torch.nn.Module,
    fake: FakeTensorMode,
    batches: Batches,
    steps: int = STEPS,
    *,
    all_micro_steps: bool = False,
) -> Recording:
    """Move ``model`` from the host to a simulated ``device`` and train it there, all of it watched.

    The model's parameters are fake tensors of ``fake`` on the CPU; called with a batch it returns a loss, or what
    holds one. ``batches(workload, number)`` gives the real CPU tensors of one batch. Of ``workload``, what concerns
    the training loop is used; the model is taken as it is. Of micro-steps that repeat, only the first run, unless
    ``all_micro_steps`` are asked for.

    Raises:
        MeasureError: the model's code refuses the step or asks for data.
    """
    gpu = registered()
    gpu.attention.begin(device.capability)
    clock = ModuleClock()
    cublas = CublasWorkspaces(cublas_workspace_bytes(device.capability))
    kernels = scratch_of_kernels(device.capability, processors_of(device.name, device.capability))
    tracker = Tracker(gpu.device.type, clock, cublas.after_op, _HOST_OUTPUTS, kernels)
    values = known.KnownValues(tracker)
    repeats = Repeats(tracker, lambda: values.varying)
    gpu.autocast.on_copy = lambda copy: tracker.mark(copy, Mark.AUTOCAST_COPY)
    with (
        without_collection(), standing_in(workload.optimizer, gpu.device), fake, tracker, values,
        watching(tracker, clock, model),
    ):  # fmt: skip
        tracker.begin(0, PhaseName.SETUP)
        move(model, gpu.device)
        next_batch = _next_batch(workload, fake, gpu, batches)
        try:
            _, watch = train_watched(
                workload, model, gpu.device.type, next_batch, steps, tracker, clock,
                leave_out=never if all_micro_steps else repeats,
            )  # fmt: skip
        except MemdoctorError:
            raise
        except Exception as error:
            raise refusal(error) or error from error
    seen = with_allocator(tracker, device, repeats.found)
    return Recording(seen.timeline, seen.outcome, tuple(watch.without_gradient or ()), seen.repeated_micro_steps)


def _next_batch(workload: Workload, fake: FakeTensorMode, gpu: Gpu, batches: Batches) -> Callable[[int], Batch]:
    numbers = count(1)

    def next_batch(rows: int) -> Batch:
        with _disable_current_modes():
            real = batches(replace(workload, batch_size=rows), next(numbers))
        return {name: _on_gpu(value, fake, gpu.device) for name, value in real.items()}

    return next_batch


def _on_gpu(value: torch.Tensor, fake: FakeTensorMode, torch_device: torch.device) -> torch.Tensor:
    moved = fake.from_tensor(value).to(torch_device)
    if not value.is_floating_point():
        known.remember(moved, value)
    return moved
