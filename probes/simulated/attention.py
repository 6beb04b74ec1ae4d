"""``scaled_dot_product_attention`` on the simulated GPU: the kernel that CUDA would choose, with its saved tensors.

The rules are those of ``sdp_utils.cpp`` (which kernel) and ``attention.cpp`` (what is done to the mask) in
PyTorch 2.11 to 2.14; the chosen operator is the real one, so its shape function says what it returns and saves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch

from memdoctor.probes.simulated.attention_math import attend_by_math
from memdoctor.probes.simulated.releases import INSTALLED, CudnnHeads, Release

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
CUDNN_MAX_HEAD, CUDNN_MAX_HEAD_HOPPER = 128, 256
MASK_ALIGNMENT = 8  # elements; attention.cpp, preprocess_mask


def choose_kernel(
    dtype: torch.dtype,
    head: tuple[int, int],
    masked: bool,
    capability: tuple[int, int],
    *,
    dropout: float,
    lengths: tuple[int, int] = (128, 128),
    causal: bool = False,
    grouped: bool = False,
    release: Release = INSTALLED,
) -> Kernel:
    """The kernel that CUDA picks for a training step (``select_sdp_backend``, with its order of preference).

    Args:
        dtype: of query, key and value.
        head: head sizes of query/key and of value.
        masked: an attention mask is passed (a batch with padding).
        capability: CUDA compute capability.
        dropout: probability of attention dropout.
        lengths: rows of queries and of keys.
        causal: ``is_causal``, which takes the place of a mask.
        grouped: heads of queries share heads of keys and values (``enable_gqa``).
        release: of PyTorch.
    """
    if _takes_cudnn(dtype, head, capability, dropout, lengths, release):
        return Kernel.CUDNN
    if not masked and not (causal and lengths[0] != lengths[1]) and _takes_flash(dtype, head, capability, dropout):
        return Kernel.FLASH
    low, high = EFFICIENT_CAPABILITIES
    if grouped and not release.efficient_takes_groups:
        return Kernel.MATH
    if low <= capability <= high and not (dtype is torch.bfloat16 and capability < (8, 0)):
        alignment = gemm_alignment(dtype, capability)
        if dtype is not torch.float64 and all(size % alignment == 0 for size in head):
            return Kernel.EFFICIENT
    return Kernel.MATH


def _takes_cudnn(
    dtype: torch.dtype,
    head: tuple[int, int],
    capability: tuple[int, int],
    dropout: float,
    lengths: tuple[int, int],
    release: Release,
) -> bool:
    """``check_prefer_cudnn_attention`` and ``can_use_cudnn_attention``; it takes masks of any kind."""
    if capability[0] not in CUDNN_PREFERRED or dtype not in HALF:
        return False
    if release.cudnn_dropout_in_sixteenths and not (16 * dropout).is_integer():
        return False
    queries, keys = lengths
    long_enough = keys != 1 and not (queries == 1 and dropout > 0)
    return long_enough and all(size % 8 == 0 for size in head) and _trains_on_cudnn(head, capability, release)


def _trains_on_cudnn(head: tuple[int, int], capability: tuple[int, int], release: Release) -> bool:
    """``check_cudnn_tensor_shapes`` and ``check_cudnn_d256_bprop_head_dim``."""
    if max(head) <= CUDNN_MAX_HEAD:
        return True
    if release.cudnn_heads is CudnnHeads.LISTED:
        return head in ((192, 128), (256, 256))
    if capability == (9, 0):
        return max(head) <= CUDNN_MAX_HEAD_HOPPER
    return head == (192, 128)


def _takes_flash(dtype: torch.dtype, head: tuple[int, int], capability: tuple[int, int], dropout: float) -> bool:
    """``can_use_flash_attention``: consumer cards have no backward for the largest heads."""
    low, high = FLASH_CAPABILITIES
    size = head[0]
    if dtype not in HALF or not low <= capability <= high or head[0] != head[1] or size > FLASH_MAX_HEAD:
        return False
    consumer = (8, 6) <= capability <= (8, 9) or capability >= (12, 0)
    return not (consumer and (192 < size <= 224 or (size > 224 and dropout > 0)))


def gemm_alignment(dtype: torch.dtype, capability: tuple[int, int]) -> int:
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
        kernel = self._choose(query, key, value, attn_mask, dropout_p, is_causal)
        self.chosen.add(kernel.value)
        mask = _additive(attn_mask, query.dtype)
        if kernel is Kernel.FLASH:
            return _flash(query, key, value, dropout_p, is_causal, scale)
        if kernel is Kernel.MATH:
            return attend_by_math(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)
        needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
        if kernel is Kernel.CUDNN:
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

    def _choose(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        dropout: float,
        causal: bool,
    ) -> Kernel:
        """With what ``choose_kernel`` does not see: fused kernels take four dimensions, the last one contiguous."""
        inputs = (query, key, value)
        if query.dim() != 4 or any(tensor.stride(-1) != 1 for tensor in inputs):
            return Kernel.MATH
        kernel = choose_kernel(
            query.dtype, (query.shape[-1], value.shape[-1]), mask is not None, self.capability, dropout=dropout,
            lengths=(query.shape[2], key.shape[2]), causal=causal, grouped=query.shape[1] != key.shape[1],
        )  # fmt: skip
        if kernel is Kernel.EFFICIENT and INSTALLED.efficient_checks_offsets and self.capability >= (8, 0):
            alignment = gemm_alignment(query.dtype, self.capability)
            if any(tensor.storage_offset() % alignment for tensor in inputs):
                return Kernel.MATH
        return kernel


def _additive(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """``convert_boolean_attn_mask``: every call makes its own float mask from a boolean one."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    minus_infinity = torch.scalar_tensor(float("-inf"), dtype=dtype, device=mask.device)
    return torch.where(mask, torch.scalar_tensor(0.0, dtype=dtype, device=mask.device), minus_infinity)


def _aligned(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
    """``preprocess_mask``: expanded over batch and heads without memory.

    A mask whose strides are no multiples of 8 (rows of another length, or broadcast along them) is padded first: a
    copy, with at least one element more in each row.
    """
    if mask is None:
        return None
    *outer, inner = mask.stride()
    if inner != 1 or any(stride % MASK_ALIGNMENT for stride in outer):
        length = mask.shape[-1]
        mask = torch.nn.functional.pad(mask, (0, MASK_ALIGNMENT - length % MASK_ALIGNMENT))[..., :length]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


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
