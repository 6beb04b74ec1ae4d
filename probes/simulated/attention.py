"""``scaled_dot_product_attention`` on the simulated GPU: the kernel that CUDA would choose, with its saved tensors.

The rules are those of ``sdp_utils.cpp`` (which kernel) and ``attention.cpp`` (what is done to the mask) in
PyTorch 2.11 to 2.14; the chosen operator is the real one, so its shape function says what it returns and saves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch

aten = torch.ops.aten


class Kernel(StrEnum):
    """Attention kernels of ``torch.nn.attention.SDPBackend``."""

    FLASH = "flash"
    EFFICIENT = "memory-efficient"
    CUDNN = "cudnn"
    MATH = "math"


HALF = (torch.float16, torch.bfloat16)
FLASH_CAPABILITIES = ((8, 0), (12, 1))  # check_flash_attention_hardware_support
EFFICIENT_CAPABILITIES = ((5, 0), (12, 1))  # check_mem_efficient_hardware_support
CUDNN_PREFERRED = (9, 10)  # major; check_prefer_cudnn_attention, cuDNN > 9.15 as in the wheels of torch >= 2.11
FLASH_MAX_HEAD = 256
CUDNN_MAX_HEAD = {(9, 0): 256}
CUDNN_MAX_HEAD_ELSEWHERE = 128
MASK_ALIGNMENT = 8  # elements; attention.cpp, preprocess_mask


def choose_kernel(
    dtype: torch.dtype, head: tuple[int, int], masked: bool, capability: tuple[int, int], *, dropout: float
) -> Kernel:
    """The kernel that CUDA picks for a training step.

    Args:
        dtype: of query, key and value.
        head: head sizes of query/key and of value.
        masked: an attention mask is passed (a batch with padding).
        capability: CUDA compute capability.
        dropout: probability of attention dropout.
    """
    if _takes_cudnn(dtype, head, capability, dropout):
        return Kernel.CUDNN
    same = head[0] == head[1]
    low, high = FLASH_CAPABILITIES
    if dtype in HALF and low <= capability <= high and not masked and same and head[0] <= FLASH_MAX_HEAD:
        consumer = (8, 6) <= capability <= (8, 9) or capability >= (12, 0)
        if not (consumer and (192 < head[0] <= 224 or (head[0] > 224 and dropout > 0))):
            return Kernel.FLASH
    low, high = EFFICIENT_CAPABILITIES
    if low <= capability <= high and not (dtype is torch.bfloat16 and capability < (8, 0)):
        alignment = _gemm_alignment(dtype, capability)
        if dtype is not torch.float64 and all(size % alignment == 0 for size in head):
            return Kernel.EFFICIENT
    return Kernel.MATH


def _takes_cudnn(dtype: torch.dtype, head: tuple[int, int], capability: tuple[int, int], dropout: float) -> bool:
    """``check_prefer_cudnn_attention`` and ``can_use_cudnn_attention``: dropout must be a multiple of 1/16."""
    limit = CUDNN_MAX_HEAD.get(capability, CUDNN_MAX_HEAD_ELSEWHERE)
    suits = max(head) <= limit and all(size % 8 == 0 for size in head)
    return capability[0] in CUDNN_PREFERRED and dtype in HALF and suits and (16 * dropout).is_integer()


def _gemm_alignment(dtype: torch.dtype, capability: tuple[int, int]) -> int:
    """``minimum_gemm_alignment`` of sdp_utils.cpp: elements of the head size."""
    half = dtype in HALF
    alignment = 4 if capability >= (8, 0) else 1
    tensor_cores = capability >= (8, 0) or (capability >= (7, 0) and half)
    return max(alignment, 128 // (16 if half else 32)) if tensor_cores else alignment


@dataclass(slots=True)
class SimulatedAttention:
    """Stands in for the composite operator on the simulated GPU and remembers which kernels it chose."""

    capability: tuple[int, int] = (0, 0)
    chosen: set[str] = field(default_factory=set)
    _library: Any = None

    def begin(self, capability: tuple[int, int]) -> None:
        """A new probe starts, on a card of this compute capability."""
        self.capability = capability
        self.chosen.clear()

    def install(self, key: str) -> None:
        """Register with PyTorch's dispatcher, under the device's autograd key."""
        self._library = torch.library.Library("aten", "IMPL")
        self._library.impl("scaled_dot_product_attention", self, key)

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        """Run the operator of the chosen kernel; arguments as ``torch.nn.functional.scaled_dot_product_attention``."""
        head = (query.shape[-1], value.shape[-1])
        kernel = Kernel.MATH
        if query.dim() == 4:
            kernel = choose_kernel(query.dtype, head, attn_mask is not None, self.capability, dropout=dropout_p)
        self.chosen.add(kernel.value)
        mask = _additive(attn_mask, query.dtype)
        if kernel is Kernel.FLASH:
            return _flash(query, key, value, dropout_p, is_causal, scale)
        needs_grad = any(tensor.requires_grad for tensor in (query, key, value))
        if kernel is Kernel.MATH:
            out = aten._scaled_dot_product_attention_math.default(
                query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        elif kernel is Kernel.CUDNN:
            out = aten._scaled_dot_product_cudnn_attention.default(
                query, key, value, mask, needs_grad, dropout_p, is_causal, False, scale=scale
            )
        else:
            out = aten._scaled_dot_product_efficient_attention.default(
                query, key, value, _aligned(mask, query, key), needs_grad, dropout_p, is_causal, scale=scale
            )
        attended = out[0]
        assert isinstance(attended, torch.Tensor)
        return attended


def _additive(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """``convert_boolean_attn_mask``: every call makes its own float mask from a boolean one."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    minus_infinity = torch.scalar_tensor(float("-inf"), dtype=dtype, device=mask.device)
    return torch.where(mask, torch.scalar_tensor(0.0, dtype=dtype, device=mask.device), minus_infinity)


def _aligned(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
    """``preprocess_mask``: expand over heads, and pad a last dimension that is no multiple of 8 (a copy)."""
    if mask is None:
        return None
    length = key.shape[2]
    rest = -length % MASK_ALIGNMENT
    if rest:
        padded = torch.nn.functional.pad(mask, (0, rest))
        return padded[..., :length].expand(query.shape[0], query.shape[1], query.shape[2], length)
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], length)


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float, is_causal: bool, scale: float | None
) -> torch.Tensor:
    """Flash attention; a head size that is no multiple of 8 is padded (three copies), and the result cut."""
    size = query.shape[-1]
    rest = -size % 8
    if rest:
        query, key, value = (torch.nn.functional.pad(tensor, (0, rest)) for tensor in (query, key, value))
    scale = size**-0.5 if scale is None else scale
    out = aten._scaled_dot_product_flash_attention.default(query, key, value, dropout_p, is_causal, False, scale=scale)
    attended = out[0]
    assert isinstance(attended, torch.Tensor)
    return attended[..., :size] if rest else attended
