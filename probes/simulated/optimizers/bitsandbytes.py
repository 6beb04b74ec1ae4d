"""bitsandbytes on a simulated GPU.

Its kernels need no stand-in: they are torch operators with a shape function, and take no memory for themselves
(``bitsandbytes/backends/cuda/ops.py`` hands pointers of the parameter, the gradient and the state to
``csrc/ops.cu``, which launches on them and allocates nothing). What it does by ctypes is paged state.
"""

from __future__ import annotations

from typing import Any

import torch

from memdoctor.probes.simulated.optimizers.replacement import Replacement


def standins(device: torch.device) -> list[Replacement]:
    """Paged state without CUDA, and maps of quantisation without their values."""
    from bitsandbytes import functional

    return [
        Replacement(functional, "create_dynamic_map", _create_dynamic_map),
        Replacement(functional, "get_paged", _get_paged),
        Replacement(functional, "fill", _nothing),
        Replacement(functional, "prefetch_tensor", _nothing),
    ]


def _create_dynamic_map(signed: bool = True, max_exponent_bits: int = 7, total_bits: int = 8) -> torch.Tensor:
    """On the host, as the real one; the first parameter with 8-bit state moves it to its device, once for all."""
    return torch.empty(2**total_bits, dtype=torch.float32)


def _get_paged(*shape: int, dtype: torch.dtype = torch.float32, device: torch.device) -> torch.Tensor:
    """A host tensor in place of ``cudaMallocManaged``: it is not of PyTorch's allocator, and not in what it reserves.

    The driver moves its pages to the GPU when a kernel touches them, and back when PyTorch wants the room.
    """
    paged = torch.empty(shape, dtype=dtype, device="cpu")
    paged.is_paged = True  # type: ignore[attr-defined]  # bitsandbytes' own marks
    paged.page_deviceid = device.index  # type: ignore[attr-defined]
    return paged


def _nothing(*_: Any, **__: Any) -> None:
    """Filling and prefetching pages allocates nothing."""
