"""The loops that can be verified, each a function of one job: the Trainer's, one by hand, and the user's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from memdoctor.probes.job import Batch
from memdoctor.records import VerificationPlan, Workload


@dataclass(frozen=True, slots=True)
class LoopJob:
    """What a loop is given: to train ``model`` once over ``batches``, stepping every ``accumulation`` of them."""

    workload: Workload
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batches: Sequence[Batch]
    accumulation: int


RunLoop = Callable[[LoopJob], None]


def loop_of(plan: VerificationPlan) -> RunLoop:
    """The loop that the plan names.

    Raises:
        InputError: there is no such function.
        MeasureError: the Trainer cannot run here.
    """
    from memdoctor.probes.verification import custom_loop, trainer_loop

    if plan.loop == "trainer":
        trainer_loop.require()
        return trainer_loop.run
    return custom_loop.runner(plan.loop) if ":" in plan.loop else by_hand


def by_hand(job: LoopJob) -> None:
    """A loop as it is mostly written, with the leftover micro-batches divided by their own number."""
    count = len(job.batches)
    job.model.train()
    for index, batch in enumerate(job.batches):
        begun = index - index % job.accumulation
        together = min(job.accumulation, count - begun)
        positional = [value for name, value in batch.items() if name.isdigit()]
        outputs = job.model(*positional, **{name: value for name, value in batch.items() if not name.isdigit()})
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs[0] if isinstance(outputs, tuple) else outputs
        (loss / together).backward()
        if index + 1 == begun + together:
            if job.workload.max_grad_norm:
                torch.nn.utils.clip_grad_norm_(job.model.parameters(), job.workload.max_grad_norm)
            job.optimizer.step()
            job.optimizer.zero_grad()


def only_here(process: int) -> None:
    """End a copy of this process that the user's code made and let go on: it would answer in our place."""
    if os.getpid() != process:
        os._exit(0)
