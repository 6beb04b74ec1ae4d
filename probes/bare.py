"""The training step with nobody watching: what recording is measured against."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from memdoctor.probes.history import Allocator
from memdoctor.probes.job import Batch
from memdoctor.probes.preparing import make_job, without_collection
from memdoctor.probes.real import Subject, batches_on, make_up_weights
from memdoctor.probes.step import train
from memdoctor.records import PhaseName, Workload

FIRST_SCALE = 2.0**8
"""GradScaler's own is 2**16. Made-up weights may overflow with it, and a step that is skipped makes no state."""


@dataclass(frozen=True, slots=True)
class Unwatched:
    """A watch that looks at nothing, and empties the cache where the step does."""

    allocator: Allocator

    def begin(self, step: int, name: PhaseName) -> None:
        """A phase starts."""

    def inputs(self, batch: Batch) -> None:
        """These tensors are the step's inputs."""

    def gradients(self, model: torch.nn.Module) -> None:
        """The model's gradients are in place."""

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer's state is in place."""

    def empty_cache(self) -> None:
        """The allocator's unused segments go back to the driver."""
        self.allocator.empty_cache()


def run_bare(allocator: Allocator, subject: Subject, workload: Workload, steps: int) -> None:
    """Move the model to the allocator's device and train it there, as the GPU probe does, without its tracker."""
    torch.manual_seed(0)
    model = subject.model
    with without_collection():
        model._apply(allocator.put)
        if subject.made_up:
            make_up_weights(model)
        next_batch = batches_on(allocator.device, workload, subject.batches)
        job = make_job(workload, model, allocator.device.type, next_batch, first_scale=FIRST_SCALE)
        train(job, Unwatched(allocator), steps)
