"""The tensors that an optimizer keeps between steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

# AdaLomo keeps its state in dictionaries of its own (lomo_optim/adalomo.py).
_OWN_STATE = ("exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col")


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Every tensor of the optimizer's state: in it, in lists, and in projectors; a tensor may come twice."""
    yield from _tensors([group["lr"] for group in optimizer.param_groups if "lr" in group])
    for state in optimizer.state.values():
        yield from _tensors(list(state.values()))
    for name in _OWN_STATE:
        yield from _tensors(list(getattr(optimizer, name, {}).values()))
    for part in getattr(optimizer, "optimizer_dict", None) or {}:  # a layer-wise optimizer is one for each parameter
        yield from state_tensors(optimizer.optimizer_dict[part])  # type: ignore[attr-defined]  # just looked


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if hasattr(value, "__tensor_flatten__"):  # quantised: a tensor of tensors
        yield from _tensors([getattr(value, name) for name in value.__tensor_flatten__()[0]])
    elif isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    else:  # GaLoreProjector of galore_torch, GradientProjector of apollo_torch
        matrix = getattr(value, "ortho_matrix", None)
        if matrix is not None:
            yield from _tensors(matrix)
