"""LOMO and AdaLomo on a simulated GPU."""

from __future__ import annotations

from typing import Any

import torch

from memdoctor.probes.simulated.optimizers.larger import larger
from memdoctor.probes.simulated.optimizers.replacement import Replacement


def standins(device: torch.device) -> list[Replacement]:
    """AdaLomo puts its state on the GPU by ``.cuda()``, and clamps its step by the norm of the weights."""
    from lomo_optim import adalomo

    def cuda(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return tensor.to(device)

    return [Replacement(torch.Tensor, "cuda", cuda), Replacement(adalomo, "max", larger)]
