"""What operators have to compute and to move: floating-point operations of products, bytes read and written, kernels.

Counted from shapes, once for each operator with the same shapes. Products of matrices and convolutions are counted by
the formulas of ``torch.utils.flop_counter``, fused attention here: the two products of its forward and the five of its
backward, which makes the scores anew (all of them, also where a causal mask leaves half of them out).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from memdoctor.records import PhaseName, PhaseWork

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_NOTHING = {  # no kernel: memory that is not filled, and other names for the same bytes
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_", "_unsafe_view",
    "_reshape_alias", "lift_fresh", "_local_scalar_dense", "detach_",
}  # fmt: skip
_OVERWRITES = {"fill_", "zero_", "copy_"}  # their first argument is written and not read
_ATTENTION = (
    aten._scaled_dot_product_efficient_attention, aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_cudnn_attention,
)  # fmt: skip
_ATTENTION_BACKWARD = (
    aten._scaled_dot_product_efficient_attention_backward, aten._scaled_dot_product_flash_attention_backward,
    aten._scaled_dot_product_cudnn_attention_backward,
)  # fmt: skip

# aten/src/ATen/native/cuda/MultiTensorApply.cuh: how many tensors a kernel takes, by the number of lists; how many
# blocks it has; and of how many elements each block works.
_TENSORS_A_KERNEL = (110, 64, 48, 36, 30)
_BLOCKS_A_KERNEL = 320
_ELEMENTS_A_BLOCK = 65536


@dataclass(frozen=True, slots=True)
class _Work:
    fp32_flops: int = 0
    half_flops: int = 0
    product_bytes: int = 0
    other_bytes: int = 0
    kernels: int = 0


_NONE = _Work()


class WorkCounter:
    """Adds up the work of operators, phase by phase, on devices of type ``device_type``."""

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type
        self._known: dict[Any, _Work] = {}
        self._phases: list[tuple[int, PhaseName, dict[_Work, int]]] = []
        self._now: dict[_Work, int] = {}  # the work of one operator -> how often

    def begin(self, step: int, name: PhaseName) -> None:
        """A new phase starts here."""
        self._now = {}
        self._phases.append((step, name, self._now))

    def count(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        """``func`` ran with these arguments and returned ``out``; none of them is held."""
        if _makes_nothing(func):
            return
        key = (func, _look(args), _look(kwargs.values()) if kwargs else (), _look((out,)))
        work = self._known.get(key)
        if work is None:
            work = self._known[key] = self._work(func, args, kwargs, out)
        self._now[work] = self._now.get(work, 0) + 1

    def _work(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> _Work:
        read, written = list(_tensors((args, list(kwargs.values())))), list(_tensors((out,)))
        seen = written or read
        if not seen or not any(_device(tensor).type == self._device_type for tensor in seen):
            return _NONE
        name = func.overloadpacket.__name__
        if not written and func._schema.is_mutable:  # those of lists return nothing
            written = [tensor for argument in _written(func, args) for tensor in _tensors((argument,))]
        moved = sum(map(_bytes, read[1:] if name in _OVERWRITES else read)) + sum(map(_bytes, written))
        kernels = _launches(args) if isinstance(args[0], (list, tuple)) and name.startswith("_f") else 1
        flops = _flops(func.overloadpacket, args, out)
        if not flops:
            return _Work(other_bytes=moved, kernels=kernels)
        half = next(tensor.dtype for tensor in read if tensor.is_floating_point()) in _HALF
        return _Work(0 if half else flops, flops if half else 0, moved, 0, kernels)

    def phases(self) -> tuple[PhaseWork, ...]:
        """What was counted, phase by phase."""
        return tuple(
            PhaseWork(
                step=step, name=name,
                fp32_flops=sum(work.fp32_flops * times for work, times in counted.items()),
                half_flops=sum(work.half_flops * times for work, times in counted.items()),
                product_bytes=sum(work.product_bytes * times for work, times in counted.items()),
                other_bytes=sum(work.other_bytes * times for work, times in counted.items()),
                kernels=sum(work.kernels * times for work, times in counted.items()),
            )
            for step, name, counted in self._phases
        )  # fmt: skip


@cache
def _makes_nothing(func: Any) -> bool:
    """Whether it launches no kernel: views, and what only asks."""
    schema = func._schema
    returns = [returned.alias_info for returned in schema.returns]
    views = any(alias is not None and not alias.is_write for alias in returns)
    return views or func.namespace == "prim" or func.overloadpacket.__name__ in _NOTHING


def _look(values: Any) -> tuple[Any, ...]:
    """What the work of an operator depends on: shapes, strides and types."""
    looked: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            looked += (value.shape, value.stride(), value.dtype)
        elif isinstance(value, (list, tuple)):
            looked.append(_look(value))
    return tuple(looked)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for item in value:
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, (list, tuple)):
            yield from _tensors(item)


def _device(tensor: torch.Tensor) -> torch.device:
    device = getattr(tensor, "fake_device", None)  # asking a fake tensor for its device dispatches
    return tensor.device if device is None else device


def _written(func: Any, args: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.name == "grads":  # fused optimizers write them where they unscale them too: fused_adam_utils.cuh
            continue
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield value if isinstance(value, (list, tuple)) else [value]


def _bytes(tensor: torch.Tensor) -> int:
    """Of the elements that there are: those of an expanded tensor are one."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return prod(size for size, stride in sizes if stride or not size) * tensor.element_size()


def _launches(args: Sequence[Any]) -> int:
    """Kernels of an operator on lists of tensors, such as fused AdamW."""
    lists = [value for value in args if isinstance(value, (list, tuple)) and next(_tensors((value,)), None) is not None]
    tensors = list(_tensors((lists[0],)))
    blocks = sum(-(-tensor.numel() // _ELEMENTS_A_BLOCK) for tensor in tensors)
    most = _TENSORS_A_KERNEL[min(len(lists), len(_TENSORS_A_KERNEL)) - 1]
    return max(-(-len(tensors) // most), -(-blocks // _BLOCKS_A_KERNEL), 1)


def _flops(packet: Any, args: Sequence[Any], out: Any) -> int:
    if packet in _ATTENTION:
        return 2 * _scores(*args[:3])
    if packet in _ATTENTION_BACKWARD:
        return 5 * _scores(*args[1:4])
    formula = flop_registry.get(packet)
    return int(formula(*args, out_val=out)) if formula is not None else 0


def _scores(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    """Operations of one product of ``[batch, heads, queries, size]`` with keys or values, on average of both."""
    *outer, queries, size = query.shape
    return prod(outer) * queries * key.shape[-2] * (size + value.shape[-1])
