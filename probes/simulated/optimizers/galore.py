"""GaLore on a simulated GPU: its projections come from singular value decompositions of gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from memdoctor.probes.simulated.optimizers.replacement import Replacement


def standins(device: torch.device) -> list[Replacement]:
    """A decomposition that takes what the real one does."""
    return [Replacement(torch.linalg, "svd", partial(_svd, torch.linalg.svd))]


def _svd(decompose: Any, matrix: torch.Tensor, full_matrices: bool = True) -> Any:
    """With the results in place the matrix is copied for the solver, which overwrites it.

    ``svd_cusolver`` in ``aten/src/ATen/native/cuda/linalg/BatchLinearAlgebraLib.cpp``. The solver's own workspace,
    whose size only cuSOLVER knows (``gesvdj_buffersize``), is not modelled.
    """
    results = decompose(matrix, full_matrices=full_matrices)
    copy = matrix.clone()
    del copy
    return results
