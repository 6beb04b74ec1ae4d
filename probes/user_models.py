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
from torch.nn.parameter import UninitializedParameter

from memdoctor.errors import InputError
from memdoctor.probes.adapting import base_of
from memdoctor.probes.batches import make_batch
from memdoctor.probes.job import Batch
from memdoctor.probes.models import attention_of
from memdoctor.records import Dtype, Workload

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
    factory = import_function(name)
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
    _check(name, module, workload)
    if workload.dtype is not Dtype.FLOAT32:  # else the module keeps the types that it was made with
        module = module.to(getattr(torch, workload.dtype.value))
    if workload.output_hidden_states:
        module.config.output_hidden_states = True  # type: ignore[union-attr]  # it has been checked
    if example is None:
        return UserModel(module, _generated(name, module))
    _normalised(name, example)  # so that a batch which is none is told before the step
    takes = inspect.signature(factory).parameters

    def batches(wanted: Workload, _seed: int) -> Batch:
        sized = any(size in takes for size in _SIZES)
        batch = _normalised(name, _call(name, factory, wanted)[1] if sized and wanted != workload else example)
        return _resized(batch, wanted, rows="batch_size" not in takes, columns="seq_length" not in takes)

    return UserModel(module, batches)


def _check(name: str, module: nn.Module, workload: Workload) -> None:
    """Refuse what cannot be simulated, and settings that are the factory's to make."""
    attention = attention_of(module)
    refusals = {
        "returned a compiled or wrapped module": (
            hasattr(module, "_orig_mod") or isinstance(module, nn.DataParallel),
            "return the module itself; what torch.compile or several GPUs change is not simulated",
        ),
        "returned a module whose parameters are not there yet": (
            any(isinstance(parameter, UninitializedParameter) for parameter in module.parameters()),
            "call the module once on a batch before it is returned",
        ),
        "returned a module with sparse gradients": (
            any(getattr(part, "sparse", False) for part in module.modules()),
            "nn.Embedding(..., sparse=False): sparse gradients are not simulated",
        ),
        f"chooses its attention itself: {attention.value if attention else 'none of transformers'}": (
            workload.attention is not None and workload.attention is not attention,
            "leave --attn-implementation out, or choose it in the factory",
        ),
        "returned a module without a config": (
            workload.output_hidden_states and not hasattr(module, "config"),
            "leave --output-hidden-states out, and return what is to be gathered",
        ),
    }
    for what, (refused, hint) in refusals.items():
        if refused:
            raise InputError(f"{name} {what}", hint=hint)


def import_function(name: str) -> Callable[..., Any]:
    """What ``package.module:function`` names, imported from where the user is.

    Raises:
        InputError: there is no such module or function, or importing it fails.
    """
    module_name, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{module_name} cannot be imported",
            why=str(error) if isinstance(error, ModuleNotFoundError) else told(error),
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
    except (Exception, SystemExit) as error:
        raise InputError(f"the factory {name} failed", why=told(error)) from error


def told(error: BaseException) -> str:
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
    tensors = dict(batch) if isinstance(batch, Mapping) else {}
    wrong = {key: value for key, value in tensors.items() if not _is_data(value)}
    if wrong or not tensors:
        key, value = next(iter(wrong.items()), (None, batch))
        place = "it" if key is None else repr(key)
        what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise InputError(
            f"the batch of {name} is not made of tensors with rows",
            why=f"{place} is {what}",
            hint="a mapping of tensors by the names of forward's parameters, a tuple of tensors, or one tensor",
        )
    return {str(key): value.detach() for key, value in tensors.items()}


def _is_data(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel() > 0


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
