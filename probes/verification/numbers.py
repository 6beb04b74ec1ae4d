"""What a loop did, in numbers: which micro-batches it took, where it stepped, with what gradients, what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from memdoctor.probes.job import Batch

Gradients = Mapping[str, torch.Tensor]
"""By the parameter's name; what has none is absent."""


_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class StepSeen:
    """An optimizer step after ``after`` micro-batches, at this learning rate, and the gradients that it was given."""

    after: int
    learning_rate: float
    gradients: Gradients


@dataclass(slots=True)
class Numbers:
    """A listener that writes down what happens.

    ``taken`` are the micro-batches by number, in order, one call or several for each; ``losses`` what the model
    returned for each of them, or what backward was called on; ``changed_after`` how many micro-batches were over each
    time that a parameter was found changed; ``no_number_at`` the first step, from 1, that was given a nan or an
    infinity; ``closures`` whether an optimizer was stepped with one.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batches: Sequence[Batch]
    keeps_gradients: bool = False
    compares_parameters: bool = False
    taken: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    steps: list[StepSeen] = field(default_factory=list)
    changed_after: list[int] = field(default_factory=list)
    other_optimizers: set[str] = field(default_factory=set)
    unknown_calls: int = 0
    backwards: int = 0
    closures: bool = False
    no_number_at: int | None = None
    autocast: bool = False
    _told: list[bool] = field(default_factory=list)  # whether the model itself returned the loss
    _kept: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The parameters as they are before the loop."""
        if self.compares_parameters:
            self._kept = [parameter.detach().clone() for parameter in self.model.parameters()]

    def before_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A micro-batch begins, or one is looked at again."""
        number = self._number_of(args, kwargs)
        if number is None:
            self.unknown_calls += 1
        elif not self.taken or number != self.taken[-1] or self._is_over():
            self.look()
            self.taken.append(number)
            self.losses.append(float("nan"))
            self._told.append(False)
        self.autocast |= torch.is_autocast_enabled("cpu")

    def _is_over(self) -> bool:
        """Whether backward was called since the last micro-batch began: the next call is of the next one."""
        return self.backwards >= len(self.taken)

    def after_forward(self, outputs: Any) -> None:
        """The loss, where the model computes it."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1 and self.losses:
            self.losses[-1], self._told[-1] = float(loss.detach()), True

    def before_backward(self, loss: torch.Tensor) -> None:
        """The loss, where the loop computes it."""
        self.backwards += 1
        if self.losses and not self._told[-1] and loss.numel() == 1:
            self.losses[-1] = float(loss.detach())

    def after_backward(self) -> None:
        """Nothing to write down."""

    def before_step(self, optimizer: torch.optim.Optimizer, *, closure: bool) -> None:
        """The gradients that the optimizer is given."""
        self.closures |= closure
        if optimizer is not self.optimizer:
            self.other_optimizers.add(type(optimizer).__name__)
            return
        if self.no_number_at is None and not _finite(self.model.parameters()):
            self.no_number_at = len(self.steps) + 1
        gradients = {
            name: parameter.grad.detach().clone()
            for name, parameter in self.model.named_parameters()
            if self.keeps_gradients and parameter.grad is not None
        }
        self.steps.append(StepSeen(len(self.taken), float(optimizer.param_groups[0]["lr"]), gradients))
        if self.keeps_gradients:  # the next step's are to be of the same weights, whatever rate the loop sets
            for group in optimizer.param_groups:
                group["lr"] = 0.0

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Nothing to write down."""

    def look(self) -> None:
        """Compare the parameters, bit by bit, with what they were the last time."""
        if not self.compares_parameters:
            return
        changed = False
        for kept, parameter in zip(self._kept, self.model.parameters(), strict=True):
            if not torch.equal(_bits(kept), _bits(parameter.detach())):
                kept.copy_(parameter.detach())
                changed = True
        if changed:
            self.changed_after.append(len(self.taken))

    def _number_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
        """Which micro-batch the model was called with: the expected one, where several are the same."""
        last: int = self.taken[-1] if self.taken else -1
        expected = [last + 1, last] if self._is_over() else [last, last + 1]
        candidates = [number for number in expected if 0 <= number < len(self.batches)]
        everything = (*candidates, *range(len(self.batches)))
        return next((number for number in everything if _is_of(self.batches[number], args, kwargs)), None)


def _finite(parameters: Iterable[torch.nn.Parameter]) -> bool:
    """Whether no gradient holds a nan or an infinity: a sum of nothing else is one too, and is quickly made."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    sums = [gradient.sum() for gradient in gradients]
    return all(total.isfinite() or gradient.isfinite().all() for total, gradient in zip(sums, gradients, strict=True))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """What is no number is not even equal to itself; its bits are."""
    return tensor.view(_WHOLE[tensor.element_size()]) if tensor.is_floating_point() else tensor


def _is_of(batch: Batch, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether every tensor that the model is given is the batch's; names that the batch does not have do not count."""
    named = [
        (batch[name], value) for name, value in kwargs.items() if name in batch and isinstance(value, torch.Tensor)
    ]
    placed = [value for value in args if isinstance(value, torch.Tensor)]
    theirs = list(batch.values())
    if not named and not placed:
        return False
    return all(_same(own, given) for own, given in named) and all(
        any(_same(own, given) for own in theirs) for given in placed
    )


def _same(own: torch.Tensor, given: torch.Tensor) -> bool:
    return own is given or (own.shape == given.shape and own.dtype == given.dtype and torch.equal(own, given))
