"""The optimizers of torch as the Trainer builds them where no ``optim_args`` are given.

They are built without the Trainer, which takes a second to import where its friends are installed. What it makes of
``optim_args`` depends on its release (5.0 passes over those of sgd, 5.17 takes them), so it is asked then.
"""

from __future__ import annotations

from typing import Any

import torch

LEARNING_RATE = 5e-5  # TrainingArguments.learning_rate; no byte depends on it
_ADAM: dict[str, Any] = {"betas": (0.9, 0.999), "eps": 1e-8}  # TrainingArguments

# _get_adamw_torch, _get_sgd, _get_adagrad and _get_rmsprop of transformers/trainer_optimizer.py; a test compares.
BUILTIN: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw_torch": (torch.optim.AdamW, _ADAM),
    "adamw_torch_fused": (torch.optim.AdamW, {**_ADAM, "fused": True}),
    "sgd": (torch.optim.SGD, {}),
    "adagrad": (torch.optim.Adagrad, {}),
    "rmsprop": (torch.optim.RMSprop, {}),
}


def build_builtin(name: str, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """The optimizer of :data:`BUILTIN` called ``name`` over parameter groups."""
    kind, settings = BUILTIN[name]
    return kind(groups, **{"lr": LEARNING_RATE, **settings})
