"""Which operators take scratch memory, and how its size follows from their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import torch

from memdoctor.probes.scratch import Piece, Scratch
from memdoctor.probes.simulated.kernels.attention import (
    Heads,
    cudnn_backward_scratch,
    efficient_backward_scratch,
    efficient_forward_scratch,
    flash_backward_scratch,
    flash_forward_scratch,
    safe_softmax_scratch,
)
from memdoctor.probes.simulated.kernels.embedding import embedding_backward_scratch
from memdoctor.probes.simulated.kernels.norms import foreach_norm_scratch, layer_norm_backward_scratch
from memdoctor.probes.simulated.kernels.products import operand_copy_bytes, product_scratch
from memdoctor.probes.simulated.kernels.reduction import reduction_scratch
from memdoctor.probes.simulated.kernels.sorting import index_put_scratch
from memdoctor.probes.simulated.processors import Processors

aten = torch.ops.aten
Measure = Callable[..., Scratch]
_HALF = (torch.float16, torch.bfloat16)
_WITH_PLACE = (aten.max.dim, aten.min.dim, aten.argmax.default, aten.argmin.default)
_SUMS = {aten.sum.default, aten.sum.dim_IntList, aten.prod.default, aten.prod.dim_int}


def scratch_of_kernels(capability: tuple[int, int], processors: Processors) -> Mapping[Any, Measure]:
    """By operator, a function that takes the operator's arguments and says what its kernel takes for itself."""
    reductions = {
        op: partial(_reduction, op, processors)
        for op in (
            aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.linalg_vector_norm.default,
            aten.prod.default, aten.prod.dim_int, aten.amax.default, aten.amin.default, *_WITH_PLACE,
        )
    }  # fmt: skip
    index_put = partial(_index_put, capability)
    return {
        aten._scaled_dot_product_flash_attention.default: partial(_flash_forward, processors),
        aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
        aten._scaled_dot_product_efficient_attention.default: _efficient_forward,
        aten._scaled_dot_product_efficient_attention_backward.default: partial(_efficient_backward, capability),
        aten._scaled_dot_product_cudnn_attention_backward.default: _cudnn_backward,
        aten._safe_softmax.default: _safe_softmax,
        aten.mm.default: _product,
        aten.bmm.default: _product,
        aten.addmm.default: _added_product,
        aten.baddbmm.default: _added_product,
        aten.embedding_dense_backward.default: partial(_embedding_backward, capability, processors),
        aten.native_layer_norm_backward.default: partial(_layer_norm_backward, processors),
        aten._foreach_norm.Scalar: _foreach_norm,
        aten.index_put_.default: index_put,
        aten.index_put.default: index_put,
        aten._index_put_impl_.default: index_put,
        **reductions,
    }


def _heads(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Heads:
    batch, count, queries, size = query.shape
    return Heads(batch, count, queries, key.shape[2], size, value.shape[3], query.element_size(), key.shape[1])


def _copy(tensor: torch.Tensor) -> int:
    """Bytes of ``tensor.contiguous()``."""
    return 0 if tensor.is_contiguous() else tensor.numel() * tensor.element_size()


def _flash_forward(
    processors: Processors,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    *_: Any,
    **__: Any,
) -> Scratch:
    return flash_forward_scratch(_heads(query, key, value), dropout_p, processors)


def _flash_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    *_: Any,
    **__: Any,
) -> Scratch:
    copied = _copy(grad_out.transpose(1, 2)) + _copy(out.transpose(1, 2))
    return flash_backward_scratch(_heads(query, key, value), copied)


def _efficient_forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> Scratch:
    return efficient_forward_scratch(_heads(query, key, value))


def _efficient_backward(
    capability: tuple[int, int],
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *_: Any,
    **__: Any,
) -> Scratch:
    return efficient_backward_scratch(_heads(query, key, value), _copy(grad_out.transpose(1, 2)), capability)


def _cudnn_backward(
    _grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> Scratch:
    return cudnn_backward_scratch(_heads(query, key, value))


def _product(one: torch.Tensor, two: torch.Tensor, *_: Any, **__: Any) -> Scratch:
    return product_scratch([operand_copy_bytes(m.shape, m.stride(), m.element_size()) for m in (one, two)])


def _added_product(_added: torch.Tensor, one: torch.Tensor, two: torch.Tensor, *_: Any, **__: Any) -> Scratch:
    return _product(one, two)


def _safe_softmax(scores: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Scratch:
    itemsize = scores.element_size() if dtype is None else dtype.itemsize
    return safe_softmax_scratch(scores.numel(), scores.numel() // scores.shape[dim], itemsize)


def _embedding_backward(
    capability: tuple[int, int],
    processors: Processors,
    grad: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    *_: Any,
    **__: Any,
) -> Scratch:
    scratch = embedding_backward_scratch(
        indices.numel(), num_weights, grad.shape[-1], grad.element_size(), capability, processors
    )
    copied = Piece("contiguous indices and grad", _copy(indices) + _copy(grad))
    return Scratch(((copied,), *scratch.before), scratch.after)


def _layer_norm_backward(
    processors: Processors,
    grad_out: torch.Tensor,
    tensor: torch.Tensor,
    normalized_shape: Sequence[int],
    _mean: torch.Tensor,
    _rstd: torch.Tensor,
    weight: torch.Tensor | None,
    _bias: torch.Tensor | None,
    output_mask: Sequence[bool],
) -> Scratch:
    copied = Piece("contiguous grad and input", _copy(grad_out) + _copy(tensor))
    if weight is None or not output_mask[1]:
        return Scratch(before=((copied,),))
    width = prod(normalized_shape)
    scratch = layer_norm_backward_scratch(tensor.numel() // width, width, weight.element_size(), processors)
    return Scratch(((copied,), *scratch.before), scratch.after)


def _foreach_norm(tensors: Sequence[torch.Tensor], *_: Any, **__: Any) -> Scratch:
    return foreach_norm_scratch([tensor.numel() for tensor in tensors])


def _index_put(
    capability: tuple[int, int],
    tensor: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    *_: Any,
    **__: Any,
) -> Scratch:
    given = [index for index in indices if index is not None]
    if not accumulate or any(index.dtype is torch.bool for index in given):
        return Scratch()
    shape = torch.broadcast_shapes(*(index.shape for index in given))
    rows = prod(size for size, index in zip(tensor.shape, indices, strict=False) if index is not None)
    elements = prod(shape) * tensor.numel() // rows
    broadcast = values.numel() != elements or not values.is_contiguous()
    copied = elements * values.element_size() if broadcast else 0
    return index_put_scratch(prod(shape), rows, copied, capability)


def _reduction(op: Any, processors: Processors, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Scratch:
    dims = _dims_of(op, tensor, args, kwargs)
    dtype = kwargs.get("dtype") or tensor.dtype
    if op in _SUMS and not dtype.is_floating_point:
        dtype = torch.int64
    summed_in = tensor.dtype if tensor.dtype in _HALF and dtype is torch.float32 else dtype
    cast = tensor.numel() * summed_in.itemsize if summed_in is not tensor.dtype else 0
    accumulator = max(4, summed_in.itemsize) if summed_in.is_floating_point else summed_in.itemsize
    if op in _WITH_PLACE:
        accumulator = 16  # a number and its place: std::pair<scalar_t, int64_t>
    scratch = reduction_scratch(tensor.shape, tensor.stride(), dims, accumulator, processors)
    return Scratch(((Piece("input in the type of the sum", cast),),), scratch.after)


def _dims_of(op: Any, tensor: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    position = 1 if op is aten.linalg_vector_norm.default else 0
    takes_none = op in (aten.sum.default, aten.mean.default, aten.prod.default)
    dims = None if takes_none else kwargs.get("dim", args[position] if len(args) > position else None)
    listed = [dims] if isinstance(dims, int) else list(dims or range(tensor.dim()))
    return [dim % tensor.dim() for dim in listed] if tensor.dim() else []
