"""What a run of training steps needs, and who is told about it: shared by the training step and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from memdoctor.records import PhaseName, Workload

Batch = Mapping[str, torch.Tensor]
"""A model's inputs by name; those with a number for a name are positional."""


OF_THE_MODEL = "in the model's forward or its backward"
"""A note on exceptions that came while the model's own code ran."""


@contextmanager
def told_as_the_models() -> Iterator[None]:
    """Put the note on what is raised here."""
    try:
        yield
    except Exception as error:
        error.add_note(OF_THE_MODEL)
        raise


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

    def empty_cache(self) -> None:
        """The allocator's unused segments go back to the driver."""


def never(left: int) -> bool:  # noqa: ARG001  # the answer to a question that has an argument
    """Every micro-step runs."""
    return False


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a run of steps needs: the model is on its device, ``next_batch(rows)`` puts a batch there.

    ``leave_out(left)`` is asked after each micro-step whether the ``left`` ones that are left of its step can be left
    out, since nothing new would be seen of them.
    """

    workload: Workload
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    next_batch: Callable[[int], Batch]
    autocast: Callable[[], AbstractContextManager[Any]]
    scaler: torch.amp.GradScaler
    leave_out: Callable[[int], bool] = never

    def fetch(self, rows: int, watch: Watch) -> Batch:
        """A batch of so many rows on the device, and ``watch`` told of it."""
        batch = self.next_batch(rows)
        watch.inputs(batch)
        return batch
