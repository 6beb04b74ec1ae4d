"""What the kernels of fused attention take for themselves."""

from __future__ import annotations

from dataclasses import dataclass

from memdoctor.probes.scratch import Piece, Scratch
from memdoctor.probes.simulated.processors import Processors

F32 = 4


@dataclass(frozen=True, slots=True)
class Heads:
    """Sizes of one attention: ``batch``, ``count`` of heads, rows of queries and of keys, elements of a head.

    ``itemsize`` is the bytes of an element of the query, ``key_heads`` differs from ``count`` where queries share keys.
    """

    batch: int
    count: int
    queries: int
    keys: int
    size: int
    value_size: int
    itemsize: int
    key_heads: int

    @property
    def half(self) -> bool:
        """fp16 or bf16."""
        return self.itemsize == 2

    @property
    def rows(self) -> int:
        """Queries of all heads and samples."""
        return self.batch * self.count * self.queries


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _rounded_head(size: int) -> int:
    return _round_up(size, 32 if size <= 128 else 64)


# Flash attention: flash_attn/flash_api.cpp


def flash_forward_scratch(heads: Heads, dropout: float, processors: Processors) -> Scratch:
    """``mha_fwd``: without dropout, few queries are split over the keys, each split with an output of its own.

    With dropout the random state is made twice, and the first is dropped.
    """
    if dropout > 0:
        return Scratch(after=((Piece("rng_state, replaced", 2 * 8),),))
    splits = _splits(heads, processors)
    if splits == 1:
        return Scratch()
    accumulated = splits * heads.rows * F32
    return Scratch(
        after=((Piece("softmax_lse_accum", accumulated), Piece("out_accum", accumulated * _rounded_head(heads.size))),)
    )


def _splits(heads: Heads, processors: Processors) -> int:
    """``set_params_splitkv`` and ``num_splits_heuristic``."""
    block = 256 if heads.size <= 64 else 128 if heads.size <= 128 else 64
    blocks = -(-heads.keys // block)
    work, slots = heads.batch * heads.count * -(-heads.queries // 64), 2 * processors.count
    if work >= 0.8 * slots:
        return 1
    eligible = [
        number
        for number in range(1, min(128, slots, blocks) + 1)
        if number == 1 or -(-blocks // number) != -(-blocks // (number - 1))
    ]
    waves = {number: work * number / slots for number in eligible}
    efficiency = {number: wave / -(-wave // 1) for number, wave in waves.items()}
    return next(number for number in eligible if efficiency[number] >= 0.85 * max(efficiency.values()))


def flash_backward_scratch(heads: Heads, copied: int) -> Scratch:
    """``_flash_attention_backward`` and ``mha_bwd``: the query's gradient is accumulated in fp32.

    ``copied`` is the bytes of the gradient and the output where they are not contiguous. The deterministic variant,
    which ``torch.use_deterministic_algorithms`` asks for, takes more and is not modelled.
    """
    padded = heads.batch * _round_up(heads.queries, 128) * heads.count
    grouped = heads.key_heads != heads.count
    expanded = heads.batch * heads.keys * heads.count * heads.size * heads.itemsize if grouped else 0
    return Scratch(
        before=((Piece("contiguous_grad_out and contiguous_out", copied),),),
        after=(
            (
                Piece("softmax_d", padded * F32),
                Piece("dq_accum", padded * _rounded_head(heads.size) * F32),
                Piece("dk_expanded", expanded),
                Piece("dv_expanded", expanded),
            ),
        ),
    )


# Memory-efficient attention: attention.cu, attention_backward.cu and mem_eff_attention/kernel_backward.h


def efficient_forward_scratch(heads: Heads) -> Scratch:
    """``_efficient_attention_forward``: heads of 16 bits that do not fit the registers are accumulated in fp32.

    ``kNeedsOutputAccumulatorBuffer``; the kernels that take heads over 128 have 128 keys a block (cutlassF.h).
    """
    if not heads.half or heads.value_size <= 128:
        return Scratch()
    return Scratch(after=((Piece("output_accum", heads.rows * heads.value_size * F32),),))


@dataclass(frozen=True, slots=True)
class _Backward:
    """A backward kernel of kernels/cutlassB.h: rows of queries and keys in a block, the largest head."""

    queries: int
    keys: int
    head: int


def efficient_backward_scratch(heads: Heads, copied: int, capability: tuple[int, int]) -> Scratch:
    """``_efficient_attention_backward``: delta, and the workspace in which gradients are accumulated.

    Heads up to 64 have one kernel each. Above, the first that fits the card's shared memory runs, which is not
    known here: the one that takes most is counted. ``copied`` is the bytes of the gradient where it is not contiguous.
    Where queries share keys (torch 2.14), every head of queries writes gradients of key and value of its own, which
    are summed at the end (``grad_key_ptr`` of kernel_backward.h): taken to live until the operator returns.
    """
    plans = [_backward_by(kernel, heads, copied, capability) for kernel in _kernels(heads, capability)]
    return max(plans, key=lambda plan: plan.peak)


def _kernels(heads: Heads, capability: tuple[int, int]) -> list[_Backward]:
    largest = max(heads.size, heads.value_size)
    if largest <= 64:
        return [_Backward(64, 64, 32 if largest <= 32 else 64)]
    limit = 128 if largest <= 128 else 65536
    kernels = [_Backward(64, 64, limit)]
    tensor_cores = capability >= (8, 0) or (heads.half and capability >= (7, 0))
    if tensor_cores:
        kernels.append(_Backward(128, 64, limit))
    if heads.half and capability >= (8, 0) and limit == 128:
        kernels[-1] = _Backward(128, 128, limit)
        if capability in ((8, 6), (8, 9)) and largest <= 96:
            kernels.append(_Backward(128, 64, 96))
    return kernels


def _backward_by(kernel: _Backward, heads: Heads, copied: int, capability: tuple[int, int]) -> Scratch:
    in_registers = heads.half and kernel.head <= kernel.queries  # kOutputInRF
    computes_delta = heads.half and (in_registers or not (7, 0) <= capability < (7, 5))  # kKernelComputesDelta
    workspace = _workspace_bytes(kernel, heads, capability, in_registers=in_registers)
    expanded = heads.batch * heads.keys * heads.count * heads.itemsize if heads.key_heads != heads.count else 0
    grouped = (
        Piece("grad_k of each head", expanded * heads.size),
        Piece("grad_v of each head", expanded * heads.value_size),
    )
    return Scratch(
        before=((Piece("grad_out", copied),),),
        after=(grouped, _delta(heads, by_kernel=computes_delta), (Piece("workspace", workspace),)),
    )


def _delta(heads: Heads, *, by_kernel: bool) -> tuple[Piece, ...]:
    """The sum of gradient times output for each query, in fp32; where the kernel does not, ATen operators make it."""
    delta = Piece("delta", heads.rows * F32)
    if by_kernel:
        return (delta,)
    product = heads.rows * heads.value_size * F32
    passing = [Piece("grad_out * out", product, stays=False)]
    if heads.half:
        passing = [Piece(name, product, stays=False) for name in ("grad_out.to(float)", "out.to(float)")] + passing
    if heads.count > 1 and heads.queries > 1:  # else the sum is contiguous as it is
        passing.append(Piece("sum of grad_out * out", delta.bytes, stays=False))
    return (*passing, delta)


def _workspace_bytes(kernel: _Backward, heads: Heads, capability: tuple[int, int], *, in_registers: bool) -> int:
    """``Params::workspace_size``: tiles of the query's gradient, and of key's and value's unless in registers."""
    splits_keys = capability >= (7, 0)  # kEnableSplitKeys
    accumulates = heads.half and not in_registers  # kNeedsAccumGradK and V
    pairs = heads.batch * heads.count
    elements = 0
    if accumulates:
        splits = _key_splits(kernel, heads, pairs) if splits_keys else 1
        widths = _round_up(heads.size, kernel.queries) + _round_up(heads.value_size, kernel.queries)
        elements += splits * kernel.keys * widths
    if splits_keys or heads.half:  # kNeedsAccumGradQ
        tiles = -(-heads.queries // kernel.queries) * -(-heads.size // kernel.keys)
        elements += tiles * (4 + kernel.queries * kernel.keys)  # GradQTempStorage: lock, counter, padding, a tile
    return pairs * _round_up(elements, 4) * F32


def _key_splits(kernel: _Backward, heads: Heads, pairs: int) -> int:
    splits = -(-heads.keys // kernel.keys)
    if pairs >= 256 and heads.keys <= 2 * kernel.keys:
        splits = 1
    return max(1, min(splits, 200 // pairs))


# cuDNN attention and the math kernel


def cudnn_backward_scratch(heads: Heads) -> Scratch:
    """An estimate: cuDNN's plan says how much it needs (``run_cudnn_SDP_bprop`` in MHA.cpp asks it).

    Counted are the two tensors that cudnn-frontend names in ``CompositeSDPABackwardNode``: the query's gradient in
    fp32, and a sum for each query. The forward's plan is taken to need nothing.
    """
    estimate = heads.rows * (heads.size + 1) * F32
    return Scratch(after=((Piece("workspace of cuDNN, estimated", estimate),),))


def safe_softmax_scratch(scores: int, rows: int, itemsize: int) -> Scratch:
    """``_safe_softmax`` in attention.cpp: a softmax, which of its inputs are -inf, which rows are so, and a zero.

    The output is a tensor of its own: rows of nothing but -inf become zeros.
    """
    return Scratch(
        before=(
            (
                Piece("softmax", scores * itemsize),
                Piece("masked", scores),
                Piece("masked_rows", rows),
                Piece("zero", itemsize),
            ),
        )
    )
