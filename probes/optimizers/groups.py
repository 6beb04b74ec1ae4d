"""The Trainer's two parameter groups, with and without weight decay; a loop written by hand mostly has one."""

from __future__ import annotations

import re
from typing import Any

from torch import nn

# Trainer.get_decay_parameter_names of transformers 5: biases and norms carry no weight decay.
_NO_DECAY = tuple(map(re.compile, (r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)")))


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Trainable parameters in the model's order, as ``Trainer.create_optimizer`` groups them; a group can be empty."""
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for path, parameter in model.named_parameters():
        if parameter.requires_grad:
            (plain if _is_plain(path, model) else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": 0.0}, {"params": plain, "weight_decay": 0.0}]


def one_group(model: nn.Module) -> list[dict[str, Any]]:
    """``Optimizer(model.parameters())``, of those that are trained."""
    return [{"params": [parameter for parameter in model.parameters() if parameter.requires_grad]}]


def _is_plain(path: str, model: nn.Module) -> bool:
    owner = model.get_submodule(path.rpartition(".")[0])
    return isinstance(owner, nn.LayerNorm) or any(pattern.search(path.lower()) for pattern in _NO_DECAY)
