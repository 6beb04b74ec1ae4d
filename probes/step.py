"""The training step, as the Trainer of transformers runs it: one function for every probe, with named phases.

Follows ``Trainer._run_epoch`` and ``Trainer.training_step`` of transformers 5: all micro-batches of an optimizer
step are on the GPU at once; the model's outputs die before backward (only the loss is returned); autocast wraps
the forward alone and outputs are cast back to fp32 (accelerate); gradients are unscaled before they are clipped;
``zero_grad`` drops the gradients; the running loss stays on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from memdoctor.records import PhaseName, Precision, Workload

Batch = Mapping[str, torch.Tensor]


class Watch(Protocol):
    """Who is told about phases and owners while the step runs."""

    def begin(self, step: int, name: PhaseName) -> None:
        """A phase starts."""

    def inputs(self, batch: Batch) -> None:
        """These tensors are the step's inputs."""

    def gradients(self, model: torch.nn.Module) -> None:
        """The model's gradients are in place."""

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer's state is in place."""


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a run of steps needs: the model is on its device, ``next_batch`` puts a batch there."""

    workload: Workload
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    next_batch: Callable[[], Batch]
    autocast: Callable[[], AbstractContextManager[Any]]
    scaler: torch.amp.GradScaler


def train(job: Job, watch: Watch, steps: int) -> None:
    """Run ``steps`` optimizer steps, telling ``watch`` where each phase begins."""
    workload = job.workload
    job.model.train()
    watch.begin(1, PhaseName.FORWARD)
    running_loss = torch.zeros((), device=next(job.model.parameters()).device)
    for step in range(1, steps + 1):
        if step > 1:
            watch.begin(step, PhaseName.FORWARD)
        batches = [_fetch(job, watch) for _ in range(workload.gradient_accumulation_steps)]
        for index, batch in enumerate(batches):
            if index:
                watch.begin(step, PhaseName.FORWARD)
            loss = _forward(job, batch)
            watch.begin(step, PhaseName.BACKWARD)
            loss = _backward(job, loss)
            watch.gradients(job.model)
            running_loss += loss
        if workload.max_grad_norm > 0:
            watch.begin(step, PhaseName.CLIP)
            _clip(job)
        watch.begin(step, PhaseName.OPTIMIZER)
        job.scaler.step(job.optimizer)
        job.scaler.update()
        watch.optimizer_state(job.optimizer)
        watch.begin(step, PhaseName.ZERO_GRAD)
        job.model.zero_grad()


def _fetch(job: Job, watch: Watch) -> Batch:
    batch = job.next_batch()
    watch.inputs(batch)
    return batch


def _forward(job: Job, batch: Batch) -> torch.Tensor:
    with job.autocast():
        outputs = job.model(**batch)
    if job.workload.precision is not Precision.FP32:
        outputs = {name: _to_fp32(value) for name, value in outputs.items()}
    loss = outputs["loss"] if "loss" in outputs else outputs["last_hidden_state"].mean()
    assert isinstance(loss, torch.Tensor)
    return loss / job.workload.gradient_accumulation_steps


def _to_fp32(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16):
        return value.float()
    return tuple(map(_to_fp32, value)) if isinstance(value, tuple) else value


def _backward(job: Job, loss: torch.Tensor) -> torch.Tensor:
    fused = getattr(job.optimizer, "fused_backward", None)  # LOMO's; Accelerator.backward calls it in place of ours
    if fused is not None:
        fused(loss, job.optimizer.param_groups[0]["lr"])
    else:
        job.scaler.scale(loss).backward()
    return loss.detach()


def _clip(job: Job) -> None:
    job.scaler.unscale_(job.optimizer)
    torch.nn.utils.clip_grad_norm_(job.model.parameters(), job.workload.max_grad_norm)
