"""The training step, watched: the tracker is told whose each tensor is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from memdoctor.probes.job import Batch, Job, never
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.optimizers import state_tensors, updates_in_backward
from memdoctor.probes.preparing import make_job
from memdoctor.probes.step import train
from memdoctor.probes.tracker import Mark, Tracker
from memdoctor.records import PhaseName, Workload


@dataclass(slots=True)
class TrackingWatch:
    """Tells the tracker what the training step shows of phases and owners."""

    tracker: Tracker
    clock: ModuleClock
    scaler: torch.amp.GradScaler
    without_gradient: list[str] | None = None  # after the first backward

    def begin(self, step: int, name: PhaseName) -> None:
        """A phase starts, outside any module."""
        self.clock.leave()
        self.tracker.begin(step, name)

    def inputs(self, batch: Batch) -> None:
        """These tensors are the step's inputs."""
        for tensor in batch.values():
            self.tracker.mark(tensor, Mark.INPUT)

    def gradients(self, model: torch.nn.Module) -> None:
        """What is in ``.grad`` is a gradient; after the first backward, note what is trained and has none."""
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
        """What the optimizer keeps."""
        for tensor in state_tensors(optimizer):
            self.tracker.mark(tensor, Mark.OPTIMIZER_STATE)

    def empty_cache(self) -> None:
        """The allocator gives its unused segments back."""
        self.tracker.empty_cache()


def train_watched(
    workload: Workload,
    model: torch.nn.Module,
    device_type: str,
    next_batch: Callable[[int], Batch],
    steps: int,
    tracker: Tracker,
    clock: ModuleClock,
    *,
    first_scale: float = 2.0**16,
    leave_out: Callable[[int], bool] = never,
) -> tuple[Job, TrackingWatch]:
    """Train ``model``, which is on its device, for ``steps`` optimizer steps; what they leave lives as long as the job.

    Raises:
        InputError, MeasureError: as for the optimizer and the step.
    """  # fmt: skip
    mark_model(model, tracker)
    in_backward = updates_in_backward(workload.optimizer)
    if in_backward:
        _mark_gradients_at_birth(model, tracker)
    job = make_job(workload, model, device_type, next_batch, first_scale=first_scale, leave_out=leave_out)
    # Where gradients are consumed in backward they are gone before anybody could miss one.
    watch = TrackingWatch(tracker, clock, job.scaler, [] if in_backward else None)
    train(job, watch, steps)
    tracker.finish()
    return job, watch


def mark_model(model: torch.nn.Module, tracker: Tracker) -> None:
    """Parameters and buffers, which are on the device already."""
    for parameter in model.parameters():
        tracker.mark(parameter, Mark.PARAMETER)
    for buffer in model.buffers():
        tracker.mark(buffer, Mark.BUFFER)


def _mark_gradients_at_birth(model: torch.nn.Module, tracker: Tracker) -> None:
    """For optimizers that consume a gradient before backward has ended."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda p: tracker.mark(p.grad, Mark.GRADIENT))
