"""The optimizers of torch itself, built without importing the Trainer, which takes a second where its friends are.

Follows ``_get_adamw_torch``, ``_get_sgd``, ``_get_adagrad`` and ``_get_rmsprop`` of
``transformers/trainer_optimizer.py`` (5.24; the same in ``Trainer.get_optimizer_cls_and_kwargs`` of 5.0); a test
compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from memdoctor.probes.optimizers.arguments import is_true

LEARNING_RATE = 5e-5  # TrainingArguments.learning_rate; no byte depends on it
_FLOATS = {
    "sgd": ("momentum", "dampening", "weight_decay"),
    "adagrad": ("lr_decay", "weight_decay", "eps"),
    "rmsprop": ("momentum", "alpha", "eps", "weight_decay"),
}
_SWITCHES = {"sgd": ("nesterov",), "rmsprop": ("centered",)}
_CLASSES: dict[str, type[torch.optim.Optimizer]] = {
    "adamw_torch": torch.optim.AdamW,
    "adamw_torch_fused": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}


def class_and_settings(name: str, arguments: Mapping[str, str]) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """The class and its keyword arguments; names in ``arguments`` that the Trainer passes over are passed over."""
    settings: dict[str, Any] = {"lr": LEARNING_RATE}
    if name.startswith("adamw"):
        settings |= {"betas": (0.9, 0.999), "eps": 1e-8}
    if name == "adamw_torch_fused":
        settings["fused"] = True
    settings |= {key: float(arguments[key]) for key in _FLOATS.get(name, ()) if key in arguments}
    settings |= {key: is_true(arguments[key]) for key in _SWITCHES.get(name, ()) if key in arguments}
    return _CLASSES[name], settings
