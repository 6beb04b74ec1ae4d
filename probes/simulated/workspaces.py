"""The workspaces that cuBLAS keeps: one for each thread that multiplies matrices.

What kernels take only while they run is in :mod:`memdoctor.probes.simulated.kernels`.
"""

from __future__ import annotations

import re
from typing import Any

from memdoctor.probes.simulated.releases import INSTALLED, Release
from memdoctor.probes.tracker import Tracker
from memdoctor.records import PhaseName

_MATMULS = {"mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "addbmm", "dot", "vdot"}

KIB = 1024
CUBLAS_WORKSPACE = 2 * 4096 * KIB + 8 * 16 * KIB  # ":4096:2:16:8", the default that NVIDIA documents
CUBLAS_WORKSPACE_32_MIB = 8 * 4096 * KIB
CUBLASLT_WORKSPACE = 1024 * KIB


def cublas_workspace_bytes(capability: tuple[int, int], config: str | None = None, release: Release = INSTALLED) -> int:
    """Bytes of one cuBLAS workspace: one per handle and stream, kept for the life of the process.

    Forward and backward run in different threads, each with a handle of its own: two workspaces in a training
    step. The recorded traces of training steps hold exactly two blocks of 8,519,680 bytes.

    Source: ``parseChosenWorkspaceSize`` in aten/src/ATen/cuda/CublasHandlePool.cpp. ``config`` is a value of
    ``CUBLAS_WORKSPACE_CONFIG``, pairs of ``:KiB:count``; one without a pair counts as none.
    """
    default = CUBLAS_WORKSPACE_32_MIB if capability[0] in release.cublas_32_mib else CUBLAS_WORKSPACE
    pairs = re.findall(r":([0-9]+):([0-9]+)", config or "")
    return sum(int(kib) * KIB * int(count) for kib, count in pairs) if pairs else default


def cublaslt_workspace_bytes(*, unified: bool = True) -> int:
    """Bytes that cuBLASLt keeps beside cuBLAS for each thread: none in the released builds.

    Products with a bias go through cuBLASLt (``gemm_and_bias``), which uses cuBLAS's workspace and makes it when it
    comes first (``getCUDABlasLtWorkspace`` in CublasHandlePool.cpp, 2.11 to 2.14). With the environment variable
    ``TORCH_CUBLASLT_UNIFIED_WORKSPACE=0`` it has 1 MiB of its own, kept like the other.
    """
    return 0 if unified else CUBLASLT_WORKSPACE


class CublasWorkspaces:
    """Opens a workspace at the first matrix product of each thread: forward's, then backward's."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._threads: set[str] = set()

    def after_op(self, tracker: Tracker, func: Any) -> None:
        """Told of every operator that has run."""
        if len(self._threads) == 2 or func.overloadpacket.__name__ not in _MATMULS:
            return
        thread = "backward" if tracker.phases[-1].name is PhaseName.BACKWARD else "forward"
        if thread not in self._threads:
            self._threads.add(thread)
            tracker.open_workspace(f"cublas workspace of the {thread} thread", self._nbytes)
