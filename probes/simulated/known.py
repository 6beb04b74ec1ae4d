"""Answers to operators that ask for data, where the workload knows the answer.

A fake tensor has no values, and a model that asks for one (``mask.all()``, ``.item()``, ``nonzero``) would stop.
But token ids, masks and labels are known: the probe made them. Every tensor computed from known ones alone carries
the recipe of its value; only when a value is asked for is the recipe run, on the CPU. What rests on weights or on
random numbers is refused, naming the operator and the line of the model.
"""

from __future__ import annotations

import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from operator import getitem
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from memdoctor.errors import MeasureError
from memdoctor.probes.tracker import Tracker

_RECIPE = "_memdoctor_recipe"
_WRITES = "_memdoctor_writes"
_ASKS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
_ZERO = torch.zeros(())
_DEVICE_OF = torch.ops.prim.device.default
_FINITE_CHECK = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
_UNINITIALISED = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_FACTORIES = {"arange", "zeros", "ones", "full", "scalar_tensor", "tril_indices"}


@dataclass(slots=True)
class Recipe:
    """How to compute a value: a finished one, or an operator on other recipes."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any = None

    def cook(self) -> Any:
        """The value, on the CPU; computed once."""
        if self.value is None:
            self.value = self.func(*tree_map(_cooked, self.args), **tree_map(_cooked, self.kwargs))
            self.args, self.kwargs = (), {}
        return self.value


def _cooked(item: Any) -> Any:
    if isinstance(item, Recipe):
        return item.cook()
    return torch.device("cpu") if isinstance(item, torch.device) else item


def remember(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Note that the fake ``tensor`` has this real CPU ``value``."""
    _note(tensor, Recipe(None, (), {}, value))


def _note(tensor: torch.Tensor, recipe: Recipe) -> None:
    setattr(tensor, _RECIPE, (_writes(tensor), recipe))


def _note_outputs(out: Any, recipe: Recipe) -> None:
    if isinstance(out, FakeTensor):
        _note(out, recipe)
        return
    for part, tensor in enumerate(out):
        if isinstance(tensor, FakeTensor):
            _note(tensor, Recipe(getitem, (recipe, part), {}))


def _recipe_of(tensor: torch.Tensor) -> Recipe | None:
    writes, recipe = getattr(tensor, _RECIPE, (0, None))
    return recipe if recipe is not None and writes == _writes(tensor) else None


def _writes(tensor: torch.Tensor) -> int:
    """How often the storage was written in place: a value known before is not known after, in any of its views.

    PyTorch's own version counter does not see what foreach operators write to fake tensors.
    """
    writes = getattr(tensor.untyped_storage(), _WRITES, 0)
    assert isinstance(writes, int)
    return writes


def _count_writes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for position, argument in enumerate(func._schema.arguments):
        if argument.is_write:
            written = args[position] if position < len(args) else kwargs.get(argument.name)
            for tensor in tree_leaves(written):
                if isinstance(tensor, FakeTensor):
                    storage = tensor.untyped_storage()
                    setattr(storage, _WRITES, getattr(storage, _WRITES, 0) + 1)


class KnownValues(TorchDispatchMode):
    """Carries recipes along and answers what they can answer. Enter it above the fake mode and the tracker."""

    def __init__(self, tracker: Tracker | None = None) -> None:
        super().__init__()
        self._tracker = tracker  # told whose output an answer is

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and being wrapped for it costs time at every operator

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer an operator that asks for data; run any other, and note the recipe of what it returns."""
        if func is _DEVICE_OF and type(args[0]) is FakeTensor:  # most dispatches are this question: answer it here
            return args[0].fake_device
        kwargs = kwargs or {}
        if _asks_for_data(func):
            return self._answer(func, args, kwargs)
        out = func(*args, **kwargs)
        if func._schema.is_mutable:
            _count_writes(func, args, kwargs)
            if func is _FINITE_CHECK:
                remember(args[1], _ZERO)  # found_inf: the ordinary step, whose gradients are finite
        elif isinstance(out, (FakeTensor, list, tuple)) and _can_be_known(func):
            recipe = _recipe_for(func, args, kwargs)
            if recipe is not None:
                _note_outputs(out, recipe)
        return out

    def _answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recipe = _recipe_for(func, args, kwargs)
        if recipe is None:
            return self._ask_fake(func, args, kwargs)
        with _disable_current_modes():
            out = func(*tree_map(_cooked, recipe.args), **tree_map(_cooked, recipe.kwargs))
        with self._tracker.acting_for(func) if self._tracker is not None else nullcontext():
            return tree_map(lambda leaf: _as_fake(leaf, args) if isinstance(leaf, torch.Tensor) else leaf, out)

    def _ask_fake(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return func(*args, **kwargs)  # a constant that the fake mode itself knows
        except Exception as error:
            where = _line_of_model()
            raise MeasureError(
                f"the model's code asks for data that a simulated GPU does not have: {func} at {where}",
                why="its value is not known: it rests on weights, on random numbers, or on a tensor changed in place",
                hint="another model; measuring this one on a GPU is not in this version",
            ) from error


@cache
def _asks_for_data(func: Any) -> bool:
    return any(tag in func.tags for tag in _ASKS)


@cache
def _can_be_known(func: Any) -> bool:
    uninitialised = func.overloadpacket.__name__ in _UNINITIALISED
    return torch.Tag.nondeterministic_seeded not in func.tags and not uninitialised


def _recipe_for(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recipe | None:
    if args and isinstance(args[0], FakeTensor) and _recipe_of(args[0]) is None:
        return None  # nearly every operator: spares a walk through its arguments
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if not tensors and func.overloadpacket.__name__ not in _FACTORIES:
        return None
    if any(isinstance(t, FakeTensor) and _recipe_of(t) is None for t in tensors):
        return None

    def replace(item: Any) -> Any:
        return _recipe_of(item) if isinstance(item, FakeTensor) else item

    return Recipe(func, tree_map(replace, args), tree_map(replace, kwargs))


def _as_fake(value: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
    source = next(leaf for leaf in tree_leaves(args) if isinstance(leaf, FakeTensor))
    fake = torch.empty(value.shape, dtype=value.dtype, device=source.device)
    remember(fake, value)
    return fake


def _line_of_model() -> str:
    own = str(Path(__file__).parent.parent)
    libraries = (str(Path(torch.__file__).parent), own)
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(libraries):
            return f"{frame.filename}:{frame.lineno}"
    return "an unknown line"
