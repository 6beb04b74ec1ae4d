"""Running a loop from the same start, as often as a check wants, and seeing what it does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch

from memdoctor.probes.job import Batch
from memdoctor.probes.optimizers import build_optimizer
from memdoctor.probes.verification.contract import check_contract
from memdoctor.probes.verification.hearing import heard, without_clipping, without_dropout
from memdoctor.probes.verification.loops import LoopJob, RunLoop
from memdoctor.probes.verification.memory import Footprint, footprint
from memdoctor.probes.verification.numbers import Gradients, Numbers
from memdoctor.records import Loop, VerificationPlan, Workload


@dataclass(slots=True)
class Bench:
    """A model at its start, a loop, and the means to run one on the other again and again."""

    workload: Workload
    plan: VerificationPlan
    model: torch.nn.Module
    loop: RunLoop
    _start: list[torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        """Keep a copy of the model's values."""
        self._start = [tensor.detach().clone() for tensor in self._values()]

    @property
    def accumulation(self) -> int:
        """Micro-batches in an optimizer step."""
        return self.workload.gradient_accumulation_steps

    def gradients_of(self, batches: Sequence[Batch], accumulation: int) -> Numbers:
        """Run without dropout, clipping and a learning rate: gradients at each step, all at the same weights."""
        with ExitStack() as stack:
            stack.enter_context(without_dropout(self.model))
            stack.enter_context(without_clipping())
            return self._seen(batches, accumulation, 0.0, earnest=False)

    def gradient_of(self, batch: Batch) -> Gradients:
        """What the same loop makes of one batch alone."""
        return self.gradients_of([batch], 1).steps[0].gradients

    def training(self, batches: Sequence[Batch]) -> Numbers:
        """Run as in earnest, with dropout, clipping and the plan's learning rate; compare parameters all the time."""
        return self._seen(batches, self.accumulation, self.plan.learning_rate, earnest=True)

    def footprint(self, batches: Sequence[Batch], accumulation: int) -> Footprint:
        """Run as in earnest, and look at the memory alone."""
        job = self._job(batches, accumulation, self.plan.learning_rate)
        return footprint(self.loop, job)

    def _seen(self, batches: Sequence[Batch], accumulation: int, learning_rate: float, *, earnest: bool) -> Numbers:
        job = self._job(batches, accumulation, learning_rate)
        seen = Numbers(self.model, job.optimizer, batches, keeps_gradients=not earnest, compares_parameters=earnest)
        with heard(self.model, seen):
            self.loop(job)
        seen.look()
        check_contract(self.plan.loop, seen, accumulation)
        return seen

    def _job(self, batches: Sequence[Batch], accumulation: int, learning_rate: float) -> LoopJob:
        with torch.no_grad():
            for value, start in zip(self._values(), self._start, strict=True):
                value.copy_(start)
        self.model.zero_grad(set_to_none=True)
        torch.manual_seed(0)
        workload = self.workload
        optimizer = build_optimizer(
            workload.optimizer, self.model, optim_args=workload.optim_args,
            target_modules=workload.optim_target_modules, gradient_accumulation_steps=accumulation,
            grouped=workload.loop is Loop.TRAINER,
        )  # fmt: skip
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        return LoopJob(workload, self.model, optimizer, batches, accumulation)

    def _values(self) -> list[torch.Tensor]:
        return [*self.model.parameters(), *self.model.buffers()]
