"""Memory that kernels take for themselves and no dispatcher sees: one function per kind, each with its source."""

from __future__ import annotations

from typing import Any

from memdoctor.probes.tracker import Tracker
from memdoctor.records import PhaseName

_MATMULS = {"mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "addbmm"}

# getChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp: ":4096:2:16:8" is 2 x 4096 KiB + 8 x 16 KiB;
# Hopper takes 32 MiB. cuBLASLt shares it (unified workspace, the default of the released builds since 2.8).
CUBLAS_WORKSPACE = 2 * 4096 * 1024 + 8 * 16 * 1024
CUBLAS_WORKSPACE_HOPPER = 4096 * 8 * 1024


def cublas_workspace_bytes(capability: tuple[int, int]) -> int:
    """Bytes of one cuBLAS workspace: one per handle and stream, kept for the life of the process.

    Forward and backward run in different threads, each with a handle of its own: two workspaces in a training
    step. The recorded traces of training steps hold exactly two blocks of 8,519,680 bytes.
    """
    return CUBLAS_WORKSPACE_HOPPER if capability == (9, 0) else CUBLAS_WORKSPACE


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
