"""StableAdamW of optimi on a simulated GPU: on CUDA it runs Triton kernels."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from memdoctor.probes.simulated.optimizers.replacement import Replacement


def standins(device: torch.device) -> list[Replacement]:
    """The state that goes with the Triton kernels, and kernels that do nothing.

    The two kernels work in place (``_triton_stableadamw`` in ``optimi/stableadamw.py``), and so does ``zero_``.
    """
    stableadamw = import_module("optimi.stableadamw")  # the package has a function of this name
    return [
        Replacement(stableadamw, "_default_to_triton", lambda parameters: True),
        Replacement(stableadamw, "_triton_stableadamw", _kernels),
    ]


def _kernels(*_: Any, mean_squares: list[torch.Tensor], **__: Any) -> None:
    for scratch in mean_squares:
        scratch.zero_()
