"""Optimizers by the Trainer's names, over the Trainer's two parameter groups (with and without weight decay)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from memdoctor.errors import InputError

_Groups = list[dict[str, Any]]


def _adafactor(groups: _Groups) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor

    return Adafactor(groups, lr=1e-5, scale_parameter=False, relative_step=False)


# TrainingArguments(optim=...) -> what transformers.trainer_optimizer builds for it.
OPTIMIZERS: dict[str, Callable[[_Groups], torch.optim.Optimizer]] = {
    "adamw_torch": lambda groups: torch.optim.AdamW(groups, lr=1e-5),
    "adamw_torch_fused": lambda groups: torch.optim.AdamW(groups, lr=1e-5, fused=True),
    "adafactor": _adafactor,
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1e-5),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=1e-5),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=1e-5),
}

# Trainer.get_decay_parameter_names of transformers 5: biases and norms carry no weight decay.
_NO_DECAY = tuple(map(re.compile, (r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)")))


def build_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer called ``name`` over the model's trainable parameters.

    Raises:
        InputError: no such optimizer, or not one that can be probed.
    """
    if name not in OPTIMIZERS:
        raise InputError(f"optimizer {name!r} cannot be probed", hint=f"--optim with one of: {', '.join(OPTIMIZERS)}")
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for path, parameter in model.named_parameters():
        if parameter.requires_grad:
            (plain if _is_plain(path, model) else decayed).append(parameter)
    groups: _Groups = [{"params": decayed, "weight_decay": 0.0}, {"params": plain, "weight_decay": 0.0}]
    return OPTIMIZERS[name]([group for group in groups if group["params"]])


def _is_plain(path: str, model: nn.Module) -> bool:
    owner = model.get_submodule(path.rpartition(".")[0])
    return isinstance(owner, nn.LayerNorm) or any(pattern.search(path.lower()) for pattern in _NO_DECAY)
