"""Where the memory of a loop is, micro-batch by micro-batch: the real tensors, seen by the tracker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from memdoctor.probes.cpu import CPU, settle
from memdoctor.probes.job import Batch
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.optimizers import state_tensors
from memdoctor.probes.preparing import without_collection
from memdoctor.probes.tracker import Mark, Tracker, watching
from memdoctor.probes.verification.hearing import heard
from memdoctor.probes.verification.loops import LoopJob, RunLoop
from memdoctor.records import Event, Phase, PhaseName


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the tracker saw of a loop, and whose some blocks are.

    ``finished`` says from which event on a block is a finished gradient: what ``.grad`` holds, from the moment at which
    autograd has added to it. ``inputs`` are the micro-batches whose input a block is: it was handed to the loop, or by
    the loop to the model, for them. ``begins`` are the events at which each micro-batch's forward begins.
    """

    events: Sequence[Event]
    phases: Sequence[Phase]
    finished: dict[int, int]
    inputs: dict[int, set[int]]
    begins: Sequence[int]


@dataclass(slots=True)
class _Memory:
    """The listener: phases for the tracker, and what belongs to whom."""

    tracker: Tracker
    clock: ModuleClock
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 1
    begins: list[int] = field(default_factory=list)
    finished: dict[int, int] = field(default_factory=dict)
    inputs: dict[int, set[int]] = field(default_factory=dict)
    incoming: dict[int, int | None] = field(default_factory=dict)  # parameter -> block of what is to be added

    def before_forward(self, args: Any, kwargs: Any) -> None:
        if not self.tracker.phases or self.tracker.phases[-1].name is not PhaseName.FORWARD:
            self.begins.append(len(self.tracker.events))
        self._begin(PhaseName.FORWARD)
        for value in tree_leaves((args, kwargs)):  # the loop may have copied what it was given
            if isinstance(value, torch.Tensor) and not value.requires_grad:
                self._is_input(value, len(self.begins) - 1)

    def after_forward(self, outputs: Any) -> None:
        pass

    def before_backward(self, loss: torch.Tensor) -> None:
        self._begin(PhaseName.BACKWARD)

    def after_backward(self) -> None:
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                self.tracker.mark(parameter.grad, Mark.GRADIENT)
        self._begin(PhaseName.CLIP)

    def before_step(self, optimizer: torch.optim.Optimizer, *, closure: bool) -> None:
        if optimizer is self.optimizer:
            self._begin(PhaseName.OPTIMIZER)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer is self.optimizer:
            for tensor in state_tensors(optimizer):
                self.tracker.mark(tensor, Mark.OPTIMIZER_STATE)
            self._begin(PhaseName.ZERO_GRAD)
            self.step += 1

    def _begin(self, name: PhaseName) -> None:
        self.clock.leave()
        self.tracker.begin(self.step, name)

    def hand_over(self, batch: Batch, number: int) -> Batch:
        """A copy of the batch, as moving it to a GPU makes one; its blocks are inputs of micro-batch ``number``."""
        copy = {name: value.clone() for name, value in batch.items()}
        for value in copy.values():
            self._is_input(value, number)
        return copy

    def _is_input(self, value: torch.Tensor, number: int) -> None:
        self.tracker.mark(value, Mark.INPUT)
        block = self._block(value)
        if block is not None:
            self.inputs.setdefault(block, set()).add(number)

    @contextmanager
    def following_gradients(self) -> Iterator[None]:
        """Note when each parameter's gradient is finished. A gradient that becomes ``.grad`` itself is so from then on.

        Where ``.grad`` is a copy, it is so from its birth: what came in is the micro-batch's own need until it dies.
        """
        handles = []
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                handles.append(parameter.register_hook(_bound(self._comes, parameter)))
                handles.append(parameter.register_post_accumulate_grad_hook(self._is_there))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _comes(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        self.incoming[id(parameter)] = self._block(gradient)

    def _is_there(self, parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        block = self._block(parameter.grad)
        if block is None or block in self.finished:
            return
        now = len(self.tracker.events)
        copied = block != self.incoming.get(id(parameter))
        self.finished[block] = self._birth(block) if copied else now

    def _birth(self, block: int) -> int:
        return next(
            position
            for position in range(len(self.tracker.events) - 1, -1, -1)
            if self.tracker.events[position] == Event(block, self.tracker.blocks[block].bytes)
        )

    def _block(self, tensor: torch.Tensor) -> int | None:
        return self.tracker._alive.get(tensor.untyped_storage()._cdata)


def _bound(hook: Any, parameter: torch.Tensor) -> Any:
    return lambda gradient: hook(parameter, gradient)


def footprint(loop: RunLoop, job: LoopJob) -> Footprint:
    """Run the loop with the tracker looking on; parameters, buffers and inputs are born before it begins."""
    clock = ModuleClock()
    tracker = Tracker(CPU.type, clock)
    listener = _Memory(tracker, clock, job.model, job.optimizer)
    with without_collection(), tracker, watching(tracker, clock, job.model):
        tracker.begin(0, PhaseName.SETUP)
        settle(job.model, tracker)
        handed = _Handed(job.batches, listener)
        with listener.following_gradients(), heard(job.model, listener):
            loop(LoopJob(job.workload, job.model, job.optimizer, handed, job.accumulation))
        tracker.finish()
    return Footprint(tracker.events, tracker.phases, listener.finished, listener.inputs, listener.begins)


class _Handed(Sequence[Batch]):
    """The micro-batches, each copied when it is asked for: the Trainer asks for one at a time, a list for all."""

    def __init__(self, batches: Sequence[Batch], listener: _Memory) -> None:
        self._batches = batches
        self._listener = listener

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: Any) -> Any:
        return self._listener.hand_over(self._batches[index], index)
