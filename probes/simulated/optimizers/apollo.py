"""APOLLO on a simulated GPU: its projections are random, from generators of the GPU and of the host."""

from __future__ import annotations

from typing import Any

import torch

from memdoctor.probes.simulated.optimizers import galore
from memdoctor.probes.simulated.optimizers.larger import larger
from memdoctor.probes.simulated.optimizers.replacement import Replacement


def standins(device: torch.device) -> list[Replacement]:
    """Random numbers without generators, which a simulated GPU has not; they take no GPU memory."""
    from apollo_torch import apollo, random_projector

    return [
        Replacement(random_projector, "stable_randn", _stable_randn),
        Replacement(random_projector, "next_seed", _same_seed),
        Replacement(apollo, "max", larger),
        *galore.standins(device),  # proj=svd
    ]


def _stable_randn(
    shape: Any, seed: int, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    return torch.randn(shape, device=device, dtype=dtype)


def _same_seed(seed: int, adv: int = 0) -> int:
    return seed
