"""Autocast on the simulated GPU: CUDA's cast policy, with its cache of weight copies.

PrivateUse1 comes without autocast rules. The lists are those of ``aten/src/ATen/autocast_mode.h``, which CUDA and
the other backends share (``AT_FORALL_...``; torch ships the header, and a test compares). A cast of an fp32 leaf that
requires grad is cached, and the copies live until the outermost autocast region ends (``cached_cast`` in
``autocast_mode.cpp``): real memory at the forward peak.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from memdoctor.probes.simulated.releases import INSTALLED

LOWER_PRECISION = (
    "_convolution.deprecated", "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul",
    "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot",
    "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
)  # fmt: skip
FP32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    *(("rms_norm",) if INSTALLED.casts_rms_norm else ()), "group_norm", "frobenius_norm.dim", "nuclear_norm",
    "nuclear_norm.dim", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d",
    "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss",
    "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss",
    "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp", "upsample_nearest1d",
    "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_nearest3d",
    "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "_upsample_bilinear2d_aa",
    "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)  # fmt: skip
FP32_BY_DTYPE_ARGUMENT = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList",
)  # fmt: skip
FP32_BY_ANOTHER_OVERLOAD = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
PROMOTE = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add",
)  # fmt: skip
BANNED = ("binary_cross_entropy",)

KEY = "AutocastPrivateUse1"
_KEYSET = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, KEY))
_HALF = (torch.float16, torch.bfloat16)


class SimulatedAutocast:
    """The cast policy for one device type. ``on_copy`` is told of every cached copy of a weight."""

    def __init__(self, device_type: str) -> None:
        self.on_copy: Callable[[torch.Tensor], None] = lambda copy: None
        self._device_type = device_type
        self._cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._libraries: list[Any] = []

    def install(self) -> None:
        """Register the policy with PyTorch's dispatcher: everything not listed runs as it is."""
        rest = torch.library.Library("_", "IMPL")
        rest.fallback(torch.library.fallthrough_kernel, KEY)
        listed = torch.library.Library("aten", "IMPL")
        for names, policy in (
            (LOWER_PRECISION, self._lower), (FP32, self._fp32),
            (FP32_BY_DTYPE_ARGUMENT, self._by_dtype_argument), (PROMOTE, self._promote), (BANNED, _banned),
            (FP32_BY_ANOTHER_OVERLOAD, self._by_another_overload),
        ):  # fmt: skip
            for name in names:
                listed.impl(name, policy(_operator(name)), KEY)
        self._libraries += [rest, listed]
        self._clear_with_torch()

    def _clear_with_torch(self) -> None:
        """Every outermost region that ends clears PyTorch's cache: the Trainer's, and each recomputed layer's own."""
        native = torch.clear_autocast_cache

        def clear() -> None:
            self._cache.clear()
            native()

        torch.clear_autocast_cache = clear

    def _lower(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            dtype = torch.get_autocast_dtype(self._device_type)
            with _below_autocast():
                return op(*self._cast(args, dtype), **self._cast(kwargs, dtype))

        return kernel

    def _fp32(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with _below_autocast():
                return op(*self._cast(args, torch.float32), **self._cast(kwargs, torch.float32))

        return kernel

    def _by_dtype_argument(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with _below_autocast():
                if self._eligible(args[0]) and kwargs.get("dtype") is None and not _has_dtype(op, args):
                    kwargs = {**kwargs, "dtype": torch.float32}
                return op(*args, **kwargs)

        return kernel

    def _by_another_overload(self, op: Any) -> Callable[..., Any]:
        typed = _operator(FP32_BY_ANOTHER_OVERLOAD[f"{op.overloadpacket.__name__}.{op._overloadname}"])

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with _below_autocast():
                if self._eligible(args[0]):
                    rest = op._schema.arguments[len(args) :]  # the other overload has no defaults
                    given = (kwargs.get(argument.name, argument.default_value) for argument in rest)
                    return typed(*args, *given, dtype=torch.float32)
                return op(*args, **kwargs)

        return kernel

    def _promote(self, op: Any) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            floats = [a.dtype for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
            widest = torch.float32 if torch.float32 in floats else torch.get_autocast_dtype(self._device_type)
            with _below_autocast():
                return op(*self._cast(args, widest), **self._cast(kwargs, widest))

        return kernel

    def _cast(self, values: Any, dtype: torch.dtype) -> Any:
        return tree_map(lambda value: self._cast_one(value, dtype), values)

    def _cast_one(self, value: Any, dtype: torch.dtype) -> Any:
        if not self._eligible(value) or value.dtype is dtype:
            return value
        weight = value.is_leaf and value.requires_grad and value.dtype is torch.float32 and value._base is None
        if not (weight and dtype in _HALF and torch.is_autocast_cache_enabled()):
            return value.to(dtype)
        if id(value) not in self._cache:
            # The weight is kept beside its copy: its id would else be free for another while the region lasts.
            self._cache[id(value)] = value, value.to(dtype)
            self.on_copy(self._cache[id(value)][1])
        return self._cache[id(value)][1]

    def _eligible(self, value: Any) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.device.type == self._device_type
            and value.is_floating_point()
            and value.dtype is not torch.float64
        )


def _banned(op: Any) -> Callable[..., Any]:
    def kernel(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"{op.overloadpacket.__name__} is unsafe to autocast: use the variant that takes logits, or leave autocast"
        )

    return kernel


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _has_dtype(op: Any, args: tuple[Any, ...]) -> bool:
    names = [argument.name for argument in op._schema.arguments]
    return "dtype" in names[: len(args)] and args[names.index("dtype")] is not None


def _below_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(_KEYSET)
