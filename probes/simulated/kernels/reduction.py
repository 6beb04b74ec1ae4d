"""Sums, means and norms: the staging buffers of ``Reduce.cuh`` when several thread blocks share one output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from memdoctor.probes.scratch import Piece, Scratch
from memdoctor.probes.simulated.processors import Processors

MAX_THREADS, WARP = 512, 32  # mnt_wrapper
VECTOR = 4  # input_vec_size, and the largest get_output_vec_size
MIN_VALUES, MAX_VALUES = 16, 256  # min_values_per_thread, max_values_per_thread
SEMAPHORE = 4


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension that the kernel iterates over; ``stride`` of the input, in elements."""

    size: int
    stride: int
    out_stride: int  # 0 where it is reduced

    @property
    def reduced(self) -> bool:
        """It is summed over."""
        return self.out_stride == 0


@dataclass(frozen=True, slots=True)
class _Block:
    """The launch as ``setReduceConfig`` leaves it."""

    width: int
    height: int
    outputs_per_thread: int
    across_width: bool  # threads of a row share an output


def reduction_scratch(
    shape: Sequence[int], strides: Sequence[int], dims: Sequence[int], accumulator: int, processors: Processors
) -> Scratch:
    """``gpu_reduce_kernel``: the staging buffer and the semaphores of a reduction over ``dims``, after its output.

    They are there when one thread would have at least 256 values to add up and the outputs are too few for the card.
    A sum over rows, such as the gradient of a bias, is generous: it takes a place for each thread of a row of the
    block, in each of the thread blocks that share an output. A recording of compute capability 9.0 has the very bytes.

    Args:
        shape: of the input.
        strides: of the input, in elements.
        dims: that are reduced, not negative; all when empty.
        accumulator: bytes of the type that is added up in (``arg_t``): 4 for fp32, fp16 and bf16.
        processors: of the card.
    """
    axes = _axes(shape, strides, set(dims) or set(range(len(shape))))
    inputs = prod(axis.size for axis in axes if axis.reduced)
    outputs = prod(axis.size for axis in axes if not axis.reduced)
    if not axes or inputs <= 1 or outputs == 0:
        return Scratch()
    block = _block(axes, inputs, outputs)
    steps = block.width if block.across_width else 1
    values = -(-inputs // steps)
    if values < min(block.height * MIN_VALUES, MAX_VALUES):
        return Scratch()  # each row of the block has outputs of its own
    values = -(-inputs // (steps * block.height))
    grid = -(-(outputs // block.outputs_per_thread) // (1 if block.across_width else block.width))
    most = processors.count * (processors.threads // (block.width * block.height))
    if values < MAX_VALUES or grid > most:
        return Scratch()
    sharing = max(min(-(-most // grid), -(-values // MIN_VALUES)), -(-values // MAX_VALUES))
    if sharing <= 1:
        return Scratch()
    places = 1 if block.across_width else block.width * block.outputs_per_thread
    buffer = Piece("staging buffer", accumulator * outputs * sharing * places)
    return Scratch(after=((buffer, Piece("semaphores", SEMAPHORE * grid)),))


def _block(axes: list[Axis], inputs: int, outputs: int) -> _Block:
    summed = [axis for axis in axes if axis.reduced]
    kept = [axis for axis in axes if not axis.reduced]
    across = not kept or summed[0].stride < kept[0].stride
    fastest = summed[0] if across else kept[0]
    wide, high = (inputs, outputs) if across else (outputs, inputs)
    vector = 1
    if fastest.stride == 1 and across and wide >= 128 and len(summed) == 1:
        wide //= VECTOR
    elif fastest.stride == 1 and not across:
        vector = _output_vector(axes, fastest)
        wide //= vector
    threads = MAX_THREADS // vector
    wide, high = _last_power_of_2(wide, threads), _last_power_of_2(high, threads)
    width = min(wide, WARP)
    height = min(high, threads // width)
    return _Block(min(wide, threads // height), height, vector, across)


def _output_vector(axes: list[Axis], output: Axis) -> int:
    """``get_output_vec_size``, for an input that starts where a vector of four can."""
    vector = VECTOR
    for number in (output.size, *(axis.stride for axis in axes if axis is not output)):
        while number % vector:
            vector //= 2
    return vector


def _axes(shape: Sequence[int], strides: Sequence[int], dims: set[int]) -> list[Axis]:
    """TensorIterator's dimensions: the reduced ones first, then by the output's stride, neighbours merged."""
    axes, out_stride = [], 1
    for dim in reversed(range(len(shape))):
        if dim in dims:
            axes.append(Axis(shape[dim], strides[dim], 0))
        else:
            axes.append(Axis(shape[dim], strides[dim], out_stride))
            out_stride *= shape[dim]
    axes.sort(key=lambda axis: (not axis.reduced, axis.out_stride or axis.stride))
    merged: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        inner = merged[-1] if merged else None
        if inner and inner.size * inner.stride == axis.stride and inner.size * inner.out_stride == axis.out_stride:
            merged[-1] = Axis(inner.size * axis.size, inner.stride, inner.out_stride)
        else:
            merged.append(axis)
    return merged


def _last_power_of_2(number: int, at_most: int) -> int:
    return at_most if number >= at_most else 1 << max(0, number.bit_length() - 1)
