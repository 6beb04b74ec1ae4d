"""The backward of an embedding: few indices are added up in place, many are sorted first."""

from __future__ import annotations

from memdoctor.probes.scratch import Piece, Scratch, Stage
from memdoctor.probes.simulated.kernels.sorting import ALL_BITS, KEY, sort_with_positions
from memdoctor.probes.simulated.processors import Processors

UNSORTED = 3072  # embedding_dense_backward_cuda in Embedding.cu: up to so many indices are not sorted
ROWS_PER_THREAD = 10  # NROWS_PER_THREAD in EmbeddingBackwardKernel.cu
MAX_BLOCK = 1024  # MAX_BLOCK_SIZE in SortingCommon.cuh
WARP = 32
FUSED_BLOCKS_PER_PROCESSOR = 4  # MAX_ATOMIC_ACCUM_BLOCKS_PER_SM
COUNT, OPMATH = 8, 4


def embedding_backward_scratch(
    indices: int, weights: int, width: int, itemsize: int, capability: tuple[int, int], processors: Processors
) -> Scratch:
    """``embedding_dense_backward_cuda`` and ``embedding_backward_cuda_kernel``, for int64 indices.

    Partial sums are made of up to ten rows each, in fp32, and there may be one for every tenth index and one for every
    row of the table that can be hit. Where few rows are hit (token types), the sums go to the table by atomic adds
    instead, through an fp32 copy of the table if it is of 16 bits.

    Not counted: temporary storage of the scans in between, a few KiB that are freed before the partial sums, which are
    larger, are there.

    Args:
        indices: how many rows are looked up.
        weights: rows of the table.
        width: of a row, elements.
        itemsize: bytes of an element of the gradient.
        capability: of the card.
        processors: of the card.
    """
    if indices <= UNSORTED:
        return Scratch()
    segments = min(indices, weights)
    partials = indices // ROWS_PER_THREAD + segments
    counting = (
        Piece("segment_offsets", indices * KEY),
        Piece("num_of_segments", COUNT),
        Piece("partials_per_segment", segments * KEY),
        Piece("partials_per_segment_offset", segments * KEY),
        Piece("num_of_partial_segments", COUNT),
        Piece("partial_segment_offset", partials * KEY),
    )
    if _adds_atomically(segments, partials, width, processors):
        copy = weights * width * OPMATH if itemsize < OPMATH else 0
        sums: Stage = (Piece("partial_to_segment_idx", partials * KEY), Piece("grad_weight_acc", copy))
    else:
        sums = (Piece("grad_weight_per_segment", partials * width * max(OPMATH, itemsize)),)
    before = sort_with_positions(indices, ALL_BITS, capability, range_stays=False)
    return Scratch(before, after=((*counting, *sums),))


def _adds_atomically(segments: int, partials: int, width: int, processors: Processors) -> bool:
    warped = -(-width // WARP) * WARP
    blocks = -(-segments * warped // min(warped, MAX_BLOCK))
    return blocks < processors.count * FUSED_BLOCKS_PER_PROCESSOR and partials > 4 * blocks
