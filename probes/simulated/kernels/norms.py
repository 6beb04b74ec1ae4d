"""The backward of layer norm, and the norms of all gradients at once."""

from __future__ import annotations

from collections.abc import Sequence

from memdoctor.probes.scratch import Piece, Scratch
from memdoctor.probes.simulated.kernels.reduction import reduction_scratch
from memdoctor.probes.simulated.processors import Processors

WARP = 32
MANY_ROWS = 64 * 1024
ROWS_PER_BLOCK = 32
MAX_GRID = 64 * 1024 // 2
CHUNK = 65536  # kChunkSize in MultiTensorApply.cuh
OPMATH = 4


def layer_norm_backward_scratch(rows: int, width: int, itemsize: int, processors: Processors) -> Scratch:
    """``LaunchGammaBetaBackwardCUDAKernel`` in layer_norm_kernel.cu: sums in two steps of more than 65,536 rows.

    Args:
        rows: tokens.
        width: of a row, elements; from half as many warps as the card has multiprocessors on, one step is enough.
        itemsize: bytes of an element of the weight.
        processors: of the card.
    """
    if rows <= MANY_ROWS or width // WARP >= processors.count // 2:
        return Scratch()
    blocks = min(MAX_GRID // -(-width // WARP), -(-rows // ROWS_PER_BLOCK))
    partial = blocks * width * itemsize
    partials = (Piece("dgamma_blocks", partial), Piece("dbeta_blocks", partial))
    summed = reduction_scratch((blocks, width), (width, 1), (0,), OPMATH, processors)
    passing = tuple(Piece(piece.name, piece.bytes, stays=False) for stage in summed.after for piece in stage)
    return Scratch(after=(partials, passing))


def foreach_norm_scratch(numbers: Sequence[int]) -> Scratch:
    """``foreach_tensor_norm_cuda`` in ForeachReduceOp.cu: an fp32 for each chunk of 65,536 elements.

    ``numbers`` are the elements of each tensor; every tensor gets as many places as the largest has chunks.
    """
    chunks = max((-(-number // CHUNK) for number in numbers), default=0)
    return Scratch(before=((Piece("output_per_tensor", len(numbers) * chunks * OPMATH),),))
