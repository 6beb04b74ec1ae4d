"""A user's own model: ``--model package.module:factory``.

The factory returns a module, or a module and a batch: a mapping of tensors by the names of ``forward``'s parameters, a
tuple of them in their order, or one tensor. It runs on real CPU tensors, before anything is simulated. Where it
takes ``batch_size`` or ``seq_length`` it is given them; else its batch is an example, whose rows and columns are
repeated to the sizes that are asked for.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from memdoctor.errors import InputError
from memdoctor.probes.adapting import base_of
from memdoctor.probes.batches import make_batch
from memdoctor.probes.job import Batch
from memdoctor.records import Workload

_SIZES = ("batch_size", "seq_length")
_NOT_THEIRS = ("<frozen", *(str(Path(file).parent) for file in (os.__file__, torch.__file__, __file__)))


@dataclass(frozen=True, slots=True)
class UserModel:
    """What a factory gave: the module on real tensors, and how to make a batch for a workload and a seed."""

    module: nn.Module
    batches: Callable[[Workload, int], Batch]


def load(name: str, workload: Workload) -> UserModel:
    """Import and call the factory ``name`` (``package.module:function``).

    Raises:
        InputError: it cannot be imported or called, or does not return what it should.
    """
    factory = _import(name)
    made = _call(name, factory, workload)
    module, example = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not isinstance(module, nn.Module):
        raise InputError(
            f"{name} returned {type(made).__name__}",
            why="a factory returns a torch.nn.Module, or a module and a batch",
            hint="return model, {'input_ids': ids, 'labels': labels}",
        )
    if next(module.parameters(), None) is None:
        raise InputError(f"{name} returned a module without parameters", why="there is nothing to train")
    module = module.to(getattr(torch, workload.dtype.value))
    if example is None:
        return UserModel(module, _generated(name, module))
    _normalised(name, example)  # so that a batch which is none is told before the step
    takes = inspect.signature(factory).parameters

    def batches(wanted: Workload, _seed: int) -> Batch:
        sized = any(size in takes for size in _SIZES)
        batch = _normalised(name, _call(name, factory, wanted)[1] if sized and wanted != workload else example)
        return _resized(batch, wanted, rows="batch_size" not in takes, columns="seq_length" not in takes)

    return UserModel(module, batches)


def _import(name: str) -> Callable[..., Any]:
    module_name, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(
            f"{module_name} cannot be imported",
            why=str(error) if isinstance(error, ModuleNotFoundError) else _told(error),
            hint="run memdoctor where python can import it",
        ) from error
    finally:
        sys.path.remove(str(Path.cwd()))
    factory = getattr(module, function, None)
    if not callable(factory):
        listed = [
            item for item, value in vars(module).items() if inspect.isfunction(value) and not item.startswith("_")
        ]
        raise InputError(
            f"{module_name} has no function {function!r}", hint=f"one of: {', '.join(listed)}" if listed else ""
        )
    return factory  # type: ignore[no-any-return]  # callable is all that can be known of it


def _call(name: str, factory: Callable[..., Any], workload: Workload) -> Any:
    takes = inspect.signature(factory).parameters
    try:
        return factory(**{size: getattr(workload, size) for size in _SIZES if size in takes})
    except Exception as error:
        raise InputError(f"the factory {name} failed", why=_told(error)) from error


def _told(error: Exception) -> str:
    """What happened, and the last line of the user's own code."""
    theirs = [line for line in traceback.extract_tb(error.__traceback__) if not line.filename.startswith(_NOT_THEIRS)]
    where = f" at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""
    return " ".join(f"{type(error).__name__}: {error}".split()) + where


def _generated(name: str, module: nn.Module) -> Callable[[Workload, int], Batch]:
    inner = base_of(module)
    parameters = inspect.signature(inner.forward).parameters
    if "input_ids" not in parameters:
        taken = ", ".join(parameters) or "nothing"
        raise InputError(
            f"{name} returned a module and no batch",
            why=f"its forward takes {taken}; a batch can be made up only for one that takes input_ids",
            hint="return model, batch",
        )
    everything = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values())
    config = getattr(inner, "config", None) or _Vocabulary(_vocabulary_of(inner))

    def batches(wanted: Workload, seed: int) -> Batch:
        batch = make_batch(inner, config, wanted, seed)
        return batch if everything else {item: value for item, value in batch.items() if item in parameters}

    return batches


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    vocab_size: int


def _vocabulary_of(module: nn.Module) -> int:
    sizes = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
    return max(sizes, default=2)


def _normalised(name: str, batch: Any) -> Batch:
    if isinstance(batch, torch.Tensor):
        batch = (batch,)
    if isinstance(batch, (tuple, list)):
        batch = {str(position): value for position, value in enumerate(batch)}
    if (
        not isinstance(batch, Mapping)
        or not batch
        or not all(isinstance(item, torch.Tensor) for item in batch.values())
    ):
        raise InputError(
            f"the batch of {name} is not made of tensors",
            why=f"it is a {type(batch).__name__}",
            hint="a mapping of tensors by the names of forward's parameters, a tuple of tensors, or one tensor",
        )
    return {str(key): value for key, value in batch.items()}


def _resized(batch: Batch, wanted: Workload, *, rows: bool, columns: bool) -> Batch:
    """Repeat the rows and the columns of an example. Columns are those of its first table of whole numbers."""
    tensors = [value for value in batch.values() if value.dim()]
    had_rows = tensors[0].shape[0] if tensors else 0
    tables = [value for value in tensors if value.dim() > 1 and not value.is_floating_point()]
    had_columns = tables[0].shape[1] if tables else 0

    def resize(value: torch.Tensor) -> torch.Tensor:
        if rows and value.dim() and value.shape[0] == had_rows:
            value = value[torch.arange(wanted.batch_size) % had_rows]
        if columns and value.dim() > 1 and had_columns and value.shape[1] == had_columns:
            value = value[:, torch.arange(wanted.seq_length) % had_columns]
        return value

    return {name: resize(value) for name, value in batch.items()}
