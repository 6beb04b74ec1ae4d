"""Attention written out: ``_scaled_dot_product_attention_math`` as it runs on CUDA.

PyTorch's own composite adds the mask out of place for tensor subclasses and under modes, and so to what this probe runs
on; on a GPU it adds in place. All else follows the composite operator by operator (attention.cpp, 2.11 to 2.14).
"""

from __future__ import annotations

import torch

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)


def attend_by_math(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    """Attention with all its intermediate tensors; ``mask`` is one that is added, or None.

    fp16 and bf16 are computed in fp32, unless ``torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp`` allows less.
    """
    # Names are not used again: what a name of the source holds lives until the operator returns.
    precise_query, precise_key, precise_value = (_precise(tensor) for tensor in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    root = abs(scale) ** 0.5
    scaled_query = aten.mul.Scalar(precise_query, -root if scale < 0 else root)
    added = _causal(scaled_query, precise_key) if is_causal else mask
    keys, values = (precise_key, precise_value)
    if enable_gqa:
        keys, values = _repeated(scaled_query, precise_key, precise_value)
    attention = torch.matmul(scaled_query, aten.mul.Scalar(keys.transpose(-2, -1), root))
    if added is not None:
        attention.add_(added)
    attention = aten._safe_softmax.default(attention, -1)
    if dropout_p > 0:
        attention = torch.dropout(attention, dropout_p, train=True)
    weights = attention.to(query.dtype)  # the composite returns them too: they live until it has returned
    out = torch.matmul(attention, values).to(query.dtype)
    del weights
    return out


def _precise(tensor: torch.Tensor) -> torch.Tensor:
    reduced = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    return tensor.float() if tensor.dtype in _HALF and not reduced else tensor


def _causal(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    minus_infinity = torch.scalar_tensor(float("-inf"), dtype=query.dtype, device=query.device)
    return torch.where(seen, torch.scalar_tensor(0.0, dtype=query.dtype, device=query.device), minus_infinity)


def _repeated(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``pre_process_group_query_attention_input``: heads of keys that several heads of queries share."""
    heads = query.shape[-3]
    if heads == key.shape[-3] == value.shape[-3]:
        return key, value
    repeated = (tensor.repeat_interleave(heads // tensor.shape[-3], -3) for tensor in (key, value))
    return next(repeated), next(repeated)
