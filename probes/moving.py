"""Other tensors for all of a module's own: to another device, or fake ones for real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


def move(model: torch.nn.Module, device: torch.device) -> None:
    """``model.to(device)``, in the same order, for fake tensors too (which ``Module.to`` cannot swap)."""
    replace_tensors(model, lambda tensor: tensor.to(device))


def replace_tensors(model: torch.nn.Module, convert: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Put what ``convert`` makes of it in the place of every parameter and buffer. Tied weights stay tied."""
    converted: dict[int, Any] = {}

    def once(tensor: torch.Tensor) -> Any:
        if id(tensor) not in converted:
            new = convert(tensor.detach())
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            converted[id(tensor)] = torch.nn.Parameter(new, tensor.requires_grad) if is_parameter else new
        return converted[id(tensor)]

    def visit(module: torch.nn.Module) -> None:
        for child in module.children():
            visit(child)
        for owned in (module._parameters, module._buffers):
            for name, tensor in list(owned.items()):
                if tensor is not None:
                    owned[name] = once(tensor)

    visit(model)


@contextmanager
def movable() -> Iterator[None]:
    """``Module.to`` works on modules of fake tensors while the context lasts, for libraries that call it (peft)."""
    native = torch.nn.Module._apply
    torch.nn.Module._apply = _apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module._apply = native  # type: ignore[method-assign]


def _apply(module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
    assert recurse  # to(), half() and the like; only a module's own parameters are moved otherwise
    replace_tensors(module, fn)
    return module
