"""What differs between releases of PyTorch: the one table, with how each fact was found.

The facts are those of the wheels for CUDA 13.0, the default on PyPI: constants of compiled functions, error messages
that are there or not, headers, and the version of cuDNN that they ask for. A release newer than the table counts as
its last row, an older one as its first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import torch


class CudnnHeads(Enum):
    """Which head sizes cuDNN attention trains (``check_cudnn_tensor_shapes`` in sdp_utils.cpp)."""

    HOPPER = auto()  # up to 256 on compute capability 9.0, up to 128 elsewhere
    LISTED = auto()  # 9.0 and 10.x: up to 128, or 192 with values of 128, or 256 (check_cudnn_d256_bprop_head_dim)


@dataclass(frozen=True, slots=True)
class Release:
    """The facts of one release.

    Attributes:
        cudnn_dropout_in_sixteenths: cuDNN attention is passed over for a dropout that is no multiple of 1/16
            (``check_cudnn_dropout``; its message is in the library or not).
        cudnn_heads: head sizes that cuDNN attention trains.
        cublas_32_mib: major compute capabilities whose cuBLAS workspace is 32 MiB (``parseChosenWorkspaceSize`` in
            CublasHandlePool.cpp: what the compiled function compares ``major`` with).
        efficient_checks_offsets: memory-efficient attention wants aligned storage offsets on 8.0 and newer
            (``check_data_ptr_alignment_mem_efficient``).
        efficient_takes_groups: memory-efficient attention takes queries that share keys (``q_heads_per_kv`` in
            mem_eff_attention/kernel_backward.h; before, no ``supports_gqa`` in ``can_use_mem_efficient_attention``).
        casts_rms_norm: autocast runs rms_norm in fp32 (``AT_FORALL_FP32`` in autocast_mode.h).
    """

    cudnn_dropout_in_sixteenths: bool
    cudnn_heads: CudnnHeads
    cublas_32_mib: tuple[int, ...]
    efficient_checks_offsets: bool
    efficient_takes_groups: bool
    casts_rms_norm: bool


RELEASES = {
    # cuDNN 9.19
    (2, 11): Release(
        False, CudnnHeads.HOPPER, (9,), efficient_checks_offsets=False, efficient_takes_groups=False,
        casts_rms_norm=False,
    ),
    # cuDNN 9.20
    (2, 12): Release(
        True, CudnnHeads.HOPPER, (9, 10, 12), efficient_checks_offsets=False, efficient_takes_groups=False,
        casts_rms_norm=True,
    ),
    # cuDNN 9.20
    (2, 13): Release(
        True, CudnnHeads.HOPPER, (9, 10, 12), efficient_checks_offsets=True, efficient_takes_groups=False,
        casts_rms_norm=True,
    ),
    # cuDNN 9.24
    (2, 14): Release(
        True, CudnnHeads.LISTED, (9, 10, 11, 12), efficient_checks_offsets=True, efficient_takes_groups=True,
        casts_rms_norm=True,
    ),
}  # fmt: skip


def release_of(version: str) -> Release:
    """The facts that hold for a version of torch, e.g. ``"2.13.0+cpu"``."""
    major, minor = (int(part) for part in version.split(".")[:2])
    known = [number for number in RELEASES if number <= (major, minor)]
    return RELEASES[max(known, default=min(RELEASES))]


INSTALLED = release_of(torch.__version__)
