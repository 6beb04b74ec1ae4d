"""Optimizers of other libraries, built by the installed Trainer's own ``create_optimizer``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from memdoctor.probes.optimizers.builtin import LEARNING_RATE


@dataclass
class _Arguments:
    """Of TrainingArguments what ``create_optimizer`` and the optimizers' handlers read, with its defaults."""

    optim: Any
    optim_args: str
    optim_target_modules: str | list[str] | None
    gradient_accumulation_steps: int
    learning_rate: float = LEARNING_RATE
    weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    warmup_steps: int = 0
    parallel_mode: Any = None  # one process on one GPU


@dataclass
class _Trainer:
    """A stand-in with what ``Trainer.create_optimizer`` looks at: a real one would want a data set and a device."""

    model: nn.Module
    args: _Arguments
    optimizer: torch.optim.Optimizer | None = None
    optimizer_cls_and_kwargs: None = None
    get_decay_parameter_names: Any = field(init=False)
    get_optimizer_cls_and_kwargs: Any = field(init=False)

    def create_optimizer(self) -> torch.optim.Optimizer:
        with _disable_current_modes():  # what a library makes when it is imported is real
            from transformers.trainer import Trainer

        self.get_decay_parameter_names = lambda model: Trainer.get_decay_parameter_names(self, model)  # type: ignore[arg-type]  # a stand-in
        self.get_optimizer_cls_and_kwargs = Trainer.get_optimizer_cls_and_kwargs
        return Trainer.create_optimizer(self)  # type: ignore[arg-type]  # a stand-in


def create_optimizer(
    name: str, model: nn.Module, optim_args: str, target_modules: Sequence[str], gradient_accumulation_steps: int
) -> torch.optim.Optimizer:
    """What the Trainer would make of ``optim``, ``optim_args`` and ``optim_target_modules``; errors are the Trainer's.

    One target module that says all-linear is the string of TrainingArguments; others are its list.
    """
    with _disable_current_modes():
        from transformers.training_args import OptimizerNames

    targets: str | list[str] | None = list(target_modules) or None
    if targets and targets[0].replace("_", "-") == "all-linear":
        targets = "all-linear"
    arguments = _Arguments(OptimizerNames(name), optim_args, targets, gradient_accumulation_steps)
    return _Trainer(model, arguments).create_optimizer()
