"""Which module is running: a clock that follows forward by hooks and backward by what its nodes saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModuleClock:
    """The path of the module at work, e.g. ``bert.encoder.layer.3.attention.self``.

    In forward (and when a checkpointed layer is run again) it is the innermost module entered. In backward
    there are no module calls: a node that unpacks a saved tensor tells where that tensor was packed, and the
    nodes between two such belong to the last one told. A node that saves nothing can thus be given to its
    neighbour's module; its bytes and category are not affected. The model itself goes by its class name.
    """

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._backward = ""
        self._paths: dict[int, str] = {}

    @property
    def current(self) -> str:
        """The module at work, or ``""`` outside the model."""
        return self._stack[-1] if self._stack else self._backward

    def in_backward_of(self, module: str) -> None:
        """Backward reached a node that was made in ``module``."""
        self._backward = module

    def leave(self) -> None:
        """Forward or backward is over: what follows belongs to no module."""
        self._backward = ""

    @contextmanager
    def following(self, model: torch.nn.Module) -> Iterator[None]:
        """Follow the modules of ``model`` while the context lasts."""
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._paths[id(model)] = type(model).__name__  # the root has no path of its own
        handles = (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._exit, always_call=True),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        self._stack.append(self._paths.get(id(module), self.current))

    def _exit(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self._stack.pop()
