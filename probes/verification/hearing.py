"""Hears what a training loop does, whoever wrote it: calls of the model, backward, steps of an optimizer, clipping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch.nn.utils import clip_grad
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class Listener(Protocol):
    """Who is told, in the order in which it happens."""

    def before_forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is about to be called, with a gradient to come."""

    def after_forward(self, outputs: Any) -> None:
        """The model returned this."""

    def before_backward(self, loss: torch.Tensor) -> None:
        """Backward starts from this tensor."""

    def after_backward(self) -> None:
        """Backward is over."""

    def before_step(self, optimizer: torch.optim.Optimizer, *, closure: bool) -> None:
        """An optimizer, the given one or another, is about to change parameters, or to call a closure first."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """It did."""


@contextmanager
def heard(model: torch.nn.Module, listener: Listener) -> Iterator[None]:
    """Tell the listener while the context lasts. Calls without a gradient (evaluation) are passed over.

    ``Tensor.backward`` and accelerate's both go through ``torch.autograd.backward``; ``torch.autograd.grad`` does not.
    """
    native = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        listener.before_backward(tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors)))
        native(tensors, *args, **kwargs)
        listener.after_backward()

    def entered(_: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():
            listener.before_forward(args, kwargs)

    def left(_: Any, _args: Any, outputs: Any) -> None:
        if torch.is_grad_enabled():
            listener.after_forward(outputs)

    def stepping(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        given = (*args[1:], *kwargs.values())  # the first is the optimizer itself (Optimizer.profile_hook_step)
        listener.before_step(optimizer, closure=any(map(callable, given)))

    with ExitStack() as stack:
        for handle in (
            model.register_forward_pre_hook(entered, with_kwargs=True),
            model.register_forward_hook(left),
            register_optimizer_step_pre_hook(stepping),
            register_optimizer_step_post_hook(lambda optimizer, *_: listener.after_step(optimizer)),
        ):
            stack.callback(handle.remove)
        torch.autograd.backward = backward
        stack.callback(setattr, torch.autograd, "backward", native)
        yield


@contextmanager
def without_clipping() -> Iterator[None]:
    """``clip_grad_norm_`` takes the norm and leaves the gradients: scaled to one norm, all gradients look alike.

    Whoever imported it before, it looks these up when it is called (``torch/nn/utils/clip_grad.py``, from 2.7 on).
    """
    native: Callable[..., Any] = clip_grad._clip_grads_with_norm_
    clip_grad._clip_grads_with_norm_ = lambda *args, **kwargs: None
    try:
        yield
    finally:
        clip_grad._clip_grads_with_norm_ = native


@contextmanager
def without_dropout(model: torch.nn.Module) -> Iterator[None]:
    """The model is in evaluation mode, whatever the loop calls: what it drops at random differs from run to run."""
    model.eval()
    model.train = lambda mode=True: model  # type: ignore[method-assign]  # an attribute before the method
    try:
        yield
    finally:
        del model.train
