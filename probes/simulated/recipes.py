"""Values of fake tensors, kept as recipes: how to compute them on the CPU, if they are ever asked for.

A tensor computed from known ones carries a recipe of its value; a storage carries one of its content, for what is
written in place. Nothing is computed before somebody asks, and no fake tensor is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import getitem
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

_RECIPE = "_memdoctor_recipe"
_CONTENT = "_memdoctor_content"
KEPT_BYTES = 1 << 20  # a larger value is computed again when it is asked for again: few are, and host memory is finite


@dataclass(slots=True, eq=False)
class Recipe:
    """How to compute a value: a finished one, or a function of other recipes."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Any = None

    def cook(self) -> Any:
        """The value, on the CPU. Must be called outside of fake modes, and not be changed.

        Without recursion: a mask that is written row by row makes a chain as long as it has rows.
        """
        large: dict[Recipe, Any] = {}
        todo = [self]
        while todo:
            recipe = todo[-1]
            if recipe.value is not None or recipe in large:
                todo.pop()
                continue
            missing = [part for part in recipe._parts() if part.value is None and part not in large]
            if missing:
                todo += missing
            else:
                recipe._finish(large)
        return self.value if self.value is not None else large[self]

    def _parts(self) -> Iterator[Recipe]:
        return (leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Recipe))

    def _finish(self, large: dict[Recipe, Any]) -> None:
        def ready(item: Any) -> Any:
            if isinstance(item, Recipe):
                return item.value if item.value is not None else large[item]
            return torch.device("cpu") if isinstance(item, torch.device) else item

        value = self.func(*tree_map(ready, self.args), **tree_map(ready, self.kwargs))
        if sum(leaf.nbytes for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)) > KEPT_BYTES:
            large[self] = value
        else:
            self.value, self.args, self.kwargs = value, (), {}


@dataclass(slots=True)
class Content:
    """What a storage holds: a recipe of its elements, flat, or ``None`` where they are not known.

    ``writes`` counts the changes in place: what was noted of a tensor before one does not hold after it.
    """

    writes: int
    elements: Recipe | None


@dataclass(frozen=True, slots=True)
class _Slot:
    """Stands for a tensor that is written, where it is among the arguments."""

    number: int


def remember(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Note that the fake ``tensor`` has this real CPU ``value``."""
    note(tensor, Recipe(None, (), {}, value))


def note(tensor: torch.Tensor, recipe: Recipe) -> None:
    """Note that the fake ``tensor`` has the value of this recipe."""
    storage = tensor.untyped_storage()
    content: Content | None = getattr(storage, _CONTENT, None)
    if content is None:
        content = Content(0, None)
        setattr(storage, _CONTENT, content)
    if content.elements is None and _covers(tensor):
        content.elements = Recipe(_spread, (recipe, tensor.numel(), *_geometry(tensor)), {})
    setattr(tensor, _RECIPE, (content.writes, recipe))


def note_outputs(out: Any, recipe: Recipe) -> None:
    """Note what an operator returned: one tensor, or several."""
    if isinstance(out, FakeTensor):
        note(out, recipe)
        return
    for part, tensor in enumerate(out):
        if isinstance(tensor, FakeTensor):
            note(tensor, Recipe(getitem, (recipe, part), {}))


def recipe_of(tensor: torch.Tensor) -> Recipe | None:
    """The recipe of a fake tensor's value as it is now."""
    noted: tuple[int, Recipe] | None = getattr(tensor, _RECIPE, None)
    if noted is None:
        return None
    content: Content = getattr(tensor.untyped_storage(), _CONTENT)
    if noted[0] == content.writes:
        return noted[1]
    if content.elements is None or tensor.is_conj() or tensor.is_neg():  # these read otherwise than the bytes say
        return None
    return _note_as_written(tensor, content, content.elements)


def _note_as_written(tensor: torch.Tensor, content: Content, elements: Recipe) -> Recipe:
    recipe = Recipe(_view, (elements, tensor.dtype, *_geometry(tensor)), {})
    setattr(tensor, _RECIPE, (content.writes, recipe))
    return recipe


def recipe_for(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recipe | None:
    """The recipe of what an operator returns; ``None`` unless all the tensors it is given are known."""
    if args and isinstance(args[0], FakeTensor) and recipe_of(args[0]) is None:
        return None  # nearly every operator: spares a walk through its arguments
    known = _all_as_recipes((args, kwargs))
    return None if known is None else Recipe(func, *known)


def _all_as_recipes(arguments: Any) -> Any:
    leaves, structure = tree_flatten(arguments)
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, FakeTensor):
            leaves[place] = recipe_of(leaf)
            if leaves[place] is None:
                return None
    return tree_unflatten(leaves, structure)


def note_writes(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, repeatable: bool, overwrites: bool
) -> None:
    """An operator has written in place: the storages hold what it wrote, or are not known any more.

    What was noted of any view of them before does not hold. PyTorch's own version counter does not see what foreach
    operators write to fake tensors.

    Args:
        func: the operator, with its arguments ``args`` and ``kwargs``.
        repeatable: it writes values that follow from its arguments, and changes no tensor's shape.
        overwrites: what was there before does not matter to it.
    """
    written = _written(func, args, kwargs)
    contents = [getattr(tensor.untyped_storage(), _CONTENT, None) for tensor in written]
    if not any(contents) and not overwrites:
        return  # never known: nearly every write
    results = _results(func, args, kwargs, written, contents, overwrites) if repeatable else None
    for number, (tensor, before) in enumerate(zip(written, contents, strict=True)):
        if before is None and results is None:
            continue
        content = before or Content(0, None)
        setattr(tensor.untyped_storage(), _CONTENT, content)
        content.writes += 1
        content.elements = None if results is None else Recipe(getitem, (results, number), {})
        if content.elements is not None and not hasattr(tensor, _RECIPE):  # was not initialised before
            _note_as_written(tensor, content, content.elements)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[FakeTensor]:
    found = []
    for position, name in _writable(func):
        argument = args[position] if position < len(args) else kwargs.get(name)
        if isinstance(argument, FakeTensor):
            found.append(argument)
        else:
            found += [leaf for leaf in tree_leaves(argument) if isinstance(leaf, FakeTensor)]
    return found


@cache
def _writable(func: Any) -> tuple[tuple[int, str], ...]:
    arguments = enumerate(func._schema.arguments)
    return tuple((position, argument.name) for position, argument in arguments if argument.is_write)


def _results(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    written: list[FakeTensor],
    contents: Sequence[Content | None],
    overwrites: bool,
) -> Recipe | None:
    """A recipe of what the written storages hold now, in order."""
    before: list[Any] = []
    for tensor, content in zip(written, contents, strict=True):
        if content is not None and content.elements is not None:
            before.append(content.elements)
        elif overwrites and _covers(tensor):
            before.append(Recipe(torch.zeros, (tensor.numel(),), {"dtype": tensor.dtype}))
        else:
            return None
    if len({tensor.untyped_storage()._cdata for tensor in written}) < len(written):
        return None  # two views of one storage
    if any(tensor.is_conj() or tensor.is_neg() for tensor in written):
        return None
    positions = dict(_writable(func))
    numbers = iter(range(len(written)))

    def slots(argument: Any) -> Any:
        return tree_map(lambda leaf: _Slot(next(numbers)) if isinstance(leaf, FakeTensor) else leaf, argument)

    given = [slots(argument) if position in positions else argument for position, argument in enumerate(args)]
    named = {name: slots(value) if name in positions.values() else value for name, value in kwargs.items()}
    known = _all_as_recipes((given, named))
    if known is None:
        return None
    geometries = [(tensor.dtype, *_geometry(tensor)) for tensor in written]
    return Recipe(_write, (func, before, geometries, *known), {})


def _write(
    func: Any, before: list[torch.Tensor], geometries: list[Any], given: list[Any], named: dict[str, Any]
) -> list[torch.Tensor]:
    """Repeat a write on copies of what the storages held."""
    after = [elements.clone() for elements in before]

    def place(item: Any) -> Any:
        return _view(after[item.number], *geometries[item.number]) if isinstance(item, _Slot) else item

    func(*tree_map(place, given), **tree_map(place, named))
    return after


def _covers(tensor: torch.Tensor) -> bool:
    """Whether the tensor is all of its storage; one that overlaps itself cannot be written or newly made."""
    return tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.size(), tensor.stride(), tensor.storage_offset()


def _spread(value: torch.Tensor, count: int, size: Any, stride: Any, offset: int) -> torch.Tensor:
    """The elements of a storage whose one tensor has this value; its strides need not be those on the CPU."""
    elements = torch.empty(count, dtype=value.dtype)
    elements.as_strided(size, stride, offset).copy_(value)
    return elements


def _view(elements: torch.Tensor, dtype: torch.dtype, size: Any, stride: Any, offset: int) -> torch.Tensor:
    """A view of a storage, of whatever type it reads the bytes as."""
    return (elements if elements.dtype is dtype else elements.view(dtype)).as_strided(size, stride, offset)
