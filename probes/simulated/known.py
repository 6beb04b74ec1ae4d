"""Answers to operators that ask for data, where the workload knows the answer.

A fake tensor has no values, and a model that asks for one (``mask.all()``, ``.item()``, ``nonzero``) would stop.
But token ids, masks and labels are known: the probe made them. Every tensor computed from known ones alone, in place
or not, carries the recipe of its value (:mod:`memdoctor.probes.simulated.recipes`); only when a value is asked for is
the recipe run, on the CPU. Of what rests on weights one thing is known: it is finite, in a training run worth having.
All else that rests on weights or on random numbers is refused, naming the operator and the line of the model.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from enum import Enum, auto
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from memdoctor.errors import MeasureError
from memdoctor.probes.simulated.recipes import Recipe, note, note_outputs, note_writes, recipe_for, recipe_of, remember
from memdoctor.probes.tracker import Tracker

__all__ = ["KnownValues", "remember"]

aten = torch.ops.aten
_ASKS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
_ZERO = torch.zeros(())
_DEVICE_OF = torch.ops.prim.device.default
_FINITE_CHECK = aten._amp_foreach_non_finite_check_and_unscale_.default
_UNINITIALISED = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_FACTORIES = {"arange", "zeros", "ones", "full", "scalar_tensor", "tril_indices", "triu_indices", "eye", "linspace"}
_SHAPED_LIKE = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
_OVERWRITES = {"fill_", "zero_", "copy_"}
_MASKS = (torch.bool, torch.uint8)  # an index of these types chooses elements


class _Kind(Enum):
    """What an operator does to what is known."""

    ASKS = auto()  # its result, or the shape of it, depends on values
    INDEXES = auto()  # by positions, or by a mask
    SHRINKS = auto()  # its result is smaller than the memory that it takes
    WRITES = auto()  # in place
    SHAPED_LIKE = auto()  # of its first argument, the shape alone matters
    MAKES = auto()  # a tensor from nothing
    COMPARES = auto()  # perhaps with itself or with infinity
    COMPUTES = auto()
    UNKNOWABLE = auto()  # random or not initialised


@cache
def _kind(func: Any) -> _Kind:
    name = func.overloadpacket.__name__
    if func in (aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default, aten.masked_select.default):
        return _Kind.INDEXES
    if func is aten.col2im.default:
        return _Kind.SHRINKS
    if any(tag in func.tags for tag in _ASKS):
        return _Kind.ASKS
    if func._schema.is_mutable:
        return _Kind.WRITES
    if torch.Tag.nondeterministic_seeded in func.tags or name in _UNINITIALISED:
        return _Kind.UNKNOWABLE
    named = {**dict.fromkeys(_SHAPED_LIKE, _Kind.SHAPED_LIKE), **dict.fromkeys(_FACTORIES, _Kind.MAKES)}
    compares = dict.fromkeys(("eq", "ne", "isnan", "isinf"), _Kind.COMPARES)
    return {**named, **compares}.get(name, _Kind.COMPUTES)


class KnownValues(TorchDispatchMode):
    """Carries recipes along and answers what they can answer. Enter it above the fake mode and the tracker."""

    def __init__(self, tracker: Tracker | None = None) -> None:
        super().__init__()
        self.varying = 0  # answers that may be others for another batch: numbers, and positions that a mask chose
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
        kind = _kind(func)
        if kind is _Kind.ASKS:
            return self._answer(func, args, kwargs)
        if kind is _Kind.INDEXES:
            return self._index(func, args, kwargs)
        if kind is _Kind.SHRINKS:
            return self._shrink(func, *args)
        out = func(*args, **kwargs)
        if kind is _Kind.WRITES:
            _note_writes(func, args, kwargs)
        elif kind is not _Kind.UNKNOWABLE and isinstance(out, (FakeTensor, list, tuple)):
            recipe = _recipe(kind, func, args, kwargs)
            if recipe is not None:
                note_outputs(out, recipe)
        return out

    def _answer(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recipe = None if func._schema.is_mutable else recipe_for(func, args, kwargs)
        if recipe is None:
            return self._ask_fake(func, args, kwargs)
        try:
            with _disable_current_modes():
                out = recipe.cook()
        except Exception as error:
            why = f"computing it on the CPU failed: {' '.join(str(error).split())}"
            raise _refusal(
                func, why, "a smaller batch or sequence length, if it is memory that is short here"
            ) from error
        self.varying += not isinstance(out, bool)  # masks have padding or not; lengths and ids differ by batch
        return self._as_fakes(func, args, out)

    def _as_fakes(self, func: Any, args: tuple[Any, ...], out: Any) -> Any:
        with self._tracker.acting_for(func) if self._tracker is not None else nullcontext():
            return tree_map(lambda leaf: _as_fake(leaf, args) if isinstance(leaf, torch.Tensor) else leaf, out)

    def _ask_fake(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return func(*args, **kwargs)  # a constant that the fake mode itself knows
        except Exception as error:
            why = "its value is not known: it rests on weights, or on random numbers"
            raise _refusal(func, why, "another model; measuring this one on a GPU is not in this version") from error

    def _shrink(self, func: Any, columns: torch.Tensor, size: list[int], kernel: list[int], *rest: Any) -> torch.Tensor:
        """The backward of ``unfold`` (ConvBERT): made as large as its input, then resized, which frees nothing.

        ``col2im_cuda`` in aten/src/ATen/native/cuda/Col2Im.cu.
        """
        *batch, channels, _ = columns.shape
        with self._tracker.acting_for(func) if self._tracker is not None else nullcontext():
            image = torch.empty_like(columns, memory_format=torch.contiguous_format)
        return image.resize_(*batch, channels // (kernel[0] * kernel[1]), *size)

    def _index(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Index by the positions that a known mask chooses: CUDA asks ``nonzero`` for them too.

        ``expandTensors`` in IndexingUtils.h; ``masked_select`` on CUDA is an index by the broadcast mask.
        """
        if func is aten.masked_select.default:
            return self._select(*args)
        positions = self._positions(func, args)
        out = func(args[0], positions, *args[2:], **kwargs)
        if func._schema.is_mutable:
            _note_writes(func, args, kwargs)
        else:
            recipe = recipe_for(func, args, kwargs)
            if recipe is not None:
                note(out, recipe)
        return out

    def _select(self, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        shape = torch.broadcast_shapes(tensor.shape, mask.shape)
        known = recipe_of(mask)
        wide = mask.expand(shape)
        if known is not None:
            note(wide, Recipe(torch.Tensor.expand, (known, shape), {}))
        value = recipe_of(tensor)
        source = tensor.expand(shape)
        if value is not None:
            note(source, Recipe(torch.Tensor.expand, (value, shape), {}))
        selected = self._index(aten.index.Tensor, (source, [wide]), {})
        assert isinstance(selected, torch.Tensor)
        return selected

    def _positions(self, func: Any, args: tuple[Any, ...]) -> Sequence[torch.Tensor | None]:
        indices: Sequence[torch.Tensor | None] = args[1]
        if all(index is None or index.dtype not in _MASKS for index in indices) or _fills_by_mask(func, args):
            return indices
        positions: list[torch.Tensor | None] = []
        for index in indices:
            if index is None or index.dtype not in _MASKS:
                positions.append(index)
            elif func is not aten.index.Tensor and recipe_of(index) is None:
                return indices  # what is written where does not change a shape
            else:
                chosen = self._answer(aten.nonzero.default, (index,), {})
                positions += [aten.select.int(chosen, 1, dimension) for dimension in range(index.dim())]
        return positions


def _fills_by_mask(func: Any, args: tuple[Any, ...]) -> bool:
    """``canDispatchToMaskedFill``: one value for all that a mask chooses needs no positions."""
    accumulates = len(args) > 3 and args[3]
    return func is not aten.index.Tensor and args[2].numel() == 1 and not accumulates


def _recipe(kind: _Kind, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recipe | None:
    if kind is _Kind.SHAPED_LIKE:
        return _recipe_of_shape(func, args, kwargs)
    if kind is _Kind.COMPARES:
        return recipe_for(func, args, kwargs) or _recipe_of_finite(func, args)
    recipe = recipe_for(func, args, kwargs)
    if kind is _Kind.COMPUTES and recipe is not None:
        from_tensors = any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((args, kwargs)))
        return recipe if from_tensors else None
    return recipe


def _recipe_of_shape(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recipe:
    pattern = Recipe(_pattern, (args[0].shape, args[0].dtype), {})
    return Recipe(func, (pattern, *args[1:]), kwargs)


def _pattern(shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of a shape that takes no memory."""
    return torch.empty((), dtype=dtype).expand(shape)


def _recipe_of_finite(func: Any, args: tuple[Any, ...]) -> Recipe | None:
    """What weights and activations are compared with, when the question is whether they are numbers.

    ``x != x`` is how NaN is told, and ``isfinite`` is ``(x == x) * (x.abs() != inf)``. Not so minus infinity: it is
    what masks put there.
    """
    name = func.overloadpacket.__name__
    if name in ("eq", "ne") and args[0] is not args[1] and not (isinstance(args[1], float) and args[1] == inf):
        return None
    same = name == "eq" and args[0] is args[1]
    differs = name == "ne" and args[0] is not args[1]
    return Recipe(torch.full, (args[0].shape, same or differs), {})


def _note_writes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    repeatable, overwrites = _manner(func)
    note_writes(func, args, kwargs, repeatable=repeatable, overwrites=overwrites)
    if func is _FINITE_CHECK:
        remember(args[1], _ZERO)  # found_inf: the ordinary step, whose gradients are finite


@cache
def _manner(func: Any) -> tuple[bool, bool]:
    repeatable = not {torch.Tag.nondeterministic_seeded, torch.Tag.inplace_view} & set(func.tags)
    has_out = any(argument.is_out for argument in func._schema.arguments)  # its tag has other names in other releases
    return repeatable, has_out or func.overloadpacket.__name__ in _OVERWRITES


def _as_fake(value: torch.Tensor, args: tuple[Any, ...]) -> torch.Tensor:
    source = next(leaf for leaf in tree_leaves(args) if isinstance(leaf, FakeTensor))
    fake = torch.empty(value.shape, dtype=value.dtype, device=source.device)
    remember(fake, value)
    return fake


def _refusal(func: Any, why: str, hint: str) -> MeasureError:
    return MeasureError(
        f"the model's code asks for data that a simulated GPU does not have: {func} at {_line_of_model()}",
        why=why,
        hint=hint,
    )


def _line_of_model() -> str:
    own = str(Path(__file__).parent.parent)
    libraries = (str(Path(torch.__file__).parent), own)
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(libraries):
            return f"{frame.filename}:{frame.lineno}"
    return "an unknown line"
