"""The training step, as the Trainer of transformers runs it: one function for every probe, with named phases.

Follows ``Trainer._run_epoch`` and ``Trainer.training_step`` of transformers 5, down to which of their variables keep
what alive: all micro-batches of an optimizer step are on the GPU at once, the old ones until the new ones are there;
the model's outputs die before backward (only the loss is returned), and the last loss after the next; autocast wraps
the forward alone and outputs are cast back to fp32 (accelerate); gradients are unscaled before they are clipped, and
their norm is kept for the log; ``zero_grad`` drops the gradients; the running loss stays on the GPU.
A loop written by hand differs as :class:`memdoctor.records.Loop` says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from memdoctor.errors import MeasureError
from memdoctor.probes.evaluation import evaluate
from memdoctor.probes.forward import compute_loss, count_items
from memdoctor.probes.job import Batch, Job, Watch, told_as_the_models
from memdoctor.probes.trainer_habits import TAKES_NORM_WITHOUT_CLIPPING
from memdoctor.records import Loop, PhaseName


def train(job: Job, watch: Watch, steps: int) -> None:
    """Run ``steps`` optimizer steps, telling ``watch`` where each phase begins; evaluate after them if asked to.

    Raises:
        MeasureError: the loss rests on nothing that is trained, or the model returns none.
    """
    workload = job.workload
    job.model.train()
    watch.begin(1, PhaseName.FORWARD)
    running_loss = torch.zeros((), device=next(job.model.parameters()).device)
    loop = _CustomLoop(job, watch) if workload.loop is Loop.CUSTOM else _TrainerLoop(job, watch)
    for step in range(1, steps + 1):
        if step > 1:
            watch.begin(step, PhaseName.FORWARD)
        batches = [job.fetch(workload.batch_size, watch) for _ in range(workload.gradient_accumulation_steps)]
        loop.count(batches)
        for index, batch in enumerate(batches):
            if index:
                watch.begin(step, PhaseName.FORWARD)
            loop.micro_step(step, batch)
            running_loss += loop.loss
            if job.leave_out(len(batches) - 1 - index):
                break
        batch = batches[-1]  # what the loop's variable keeps alive, had all of them run
        if loop.clips:
            watch.begin(step, PhaseName.CLIP)
            loop.clip()
        watch.begin(step, PhaseName.OPTIMIZER)
        job.scaler.step(job.optimizer)
        job.scaler.update()
        watch.optimizer_state(job.optimizer)
        watch.begin(step, PhaseName.ZERO_GRAD)
        job.model.zero_grad(set_to_none=workload.zero_grad_set_to_none)
    if workload.evaluate:
        watch.begin(steps, PhaseName.EVALUATION)
        evaluate(job, watch)


@dataclass(slots=True)
class _TrainerLoop:
    """The Trainer's: its attributes are the variables of its functions, and keep what they hold alive as long."""

    job: Job
    watch: Watch
    loss: Any = None
    items: torch.Tensor | None = None
    norm: torch.Tensor | None = None

    @property
    def clips(self) -> bool:
        return self.job.workload.max_grad_norm > 0 or TAKES_NORM_WITHOUT_CLIPPING  # then it clips to infinity

    def count(self, batches: list[Batch]) -> None:
        self.items = count_items(self.job.model, batches)

    def micro_step(self, step: int, batch: Batch) -> None:
        passes = self.job.workload.forward_passes
        loss = compute_loss(self.job, batch, self.items, passes=passes)[0]  # the outputs die here
        _between(self.job, self.watch, step)
        if self.items is None:
            loss = loss / self.job.workload.gradient_accumulation_steps
        else:  # it was divided by the labels of the whole step, and is multiplied by the number of devices
            loss *= 1
        _backward(self.job, self.watch, loss / 1)  # accelerate divides by the steps it was told of
        self.loss = loss.detach()
        torch.isnan(self.loss)  # logging_nan_inf_filter
        torch.isinf(self.loss)

    def clip(self) -> None:
        self.norm = None
        self.norm = _clip(self.job, self.job.workload.max_grad_norm or math.inf)


@dataclass(slots=True)
class _CustomLoop:
    """By hand: ``outputs = model(**batch)``, ``loss = outputs.loss / n``, ``loss.backward()``."""

    job: Job
    watch: Watch
    loss: Any = None
    outputs: Any = None

    @property
    def clips(self) -> bool:
        return self.job.workload.max_grad_norm > 0

    def count(self, batches: list[Batch]) -> None:
        pass

    def micro_step(self, step: int, batch: Batch) -> None:
        loss, self.outputs = compute_loss(self.job, batch, None, passes=self.job.workload.forward_passes)
        self.loss = loss / self.job.workload.gradient_accumulation_steps
        del loss
        _between(self.job, self.watch, step)
        _backward(self.job, self.watch, self.loss)
        self.loss = self.loss.detach()

    def clip(self) -> None:
        _clip(self.job, self.job.workload.max_grad_norm)


def _between(job: Job, watch: Watch, step: int) -> None:
    """Forward is over: the Trainer empties the cache here, and backward begins."""
    every = job.workload.torch_empty_cache_steps
    if every is not None and (step - 1) % every == 0:
        watch.empty_cache()
    watch.begin(step, PhaseName.BACKWARD)


def _backward(job: Job, watch: Watch, loss: torch.Tensor) -> None:
    if not loss.requires_grad:
        raise MeasureError(
            "the step trains nothing: the loss rests on no parameter that is trained",
            why="everything that is not frozen lies outside the forward pass, or reentrant checkpointing cut it off",
            hint="freeze less, or --no-use-reentrant",
        )
    fused = getattr(job.optimizer, "fused_backward", None)  # LOMO's; Accelerator.backward calls it in place of ours
    with told_as_the_models():
        if fused is not None:
            fused(loss, job.optimizer.param_groups[0]["lr"])
        else:
            job.scaler.scale(loss).backward()
    watch.gradients(job.model)


def _clip(job: Job, norm: float) -> torch.Tensor:
    job.scaler.unscale_(job.optimizer)
    return torch.nn.utils.clip_grad_norm_(job.model.parameters(), norm)
