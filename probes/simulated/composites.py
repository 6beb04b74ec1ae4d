"""Composite operators that CUDA runs in a fused way and other devices do not."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten


def install(key: str) -> Any:
    """Register them under the device's autograd key; the library must be kept alive."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("softmax.int", _softmax, key)
    library.impl("log_softmax.int", _log_softmax, key)
    return library


def _softmax(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    return aten._softmax.default(*_half_to_float(tensor, dim, dtype))


def _log_softmax(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    return aten._log_softmax.default(*_half_to_float(tensor, dim, dtype))


def _half_to_float(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None) -> tuple[torch.Tensor, int, bool]:
    """``aten/src/ATen/native/SoftMax.cpp``: CUDA reads fp16 and writes fp32 without an fp32 copy of its input."""
    if tensor.dtype is torch.float16 and dtype is torch.float32:
        return tensor, dim, True
    return (tensor if dtype is None else tensor.to(dtype)), dim, False
