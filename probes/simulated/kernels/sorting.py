"""Sorting on the GPU: the temporary storage of CUB's radix sort, and ``index_put_`` with it."""

from __future__ import annotations

from memdoctor.probes.scratch import Piece, Scratch

KEY = VALUE = OFFSET = 8  # bytes: PyTorch sorts int64 indices and counts with int64_t, so CUB's offsets are 64 bits
RADIX_BITS, RADIX_DIGITS = 8, 256
COUNTER = 4
ALIGNMENT = 256  # cub/util_temporary_storage.cuh, AliasTemporaries: each part, and once more for the start
SINGLE_TILE = 256 * 9  # SingleTilePolicy: 256 threads with 19 words of 4 bytes, which is 9 pairs of 8
ALL_BITS = 64


def radix_sort_bytes(count: int, bits: int, capability: tuple[int, int]) -> int:
    """Temporary storage of ``cub::DeviceRadixSort::SortPairs`` for ``count`` int64 keys and values.

    ``bits`` of the key are sorted by. Source: ``DispatchRadixSort::InvokeOnesweep`` in cub of CUDA 13.0; up to one tile
    is sorted in place, with one byte asked for. The keys and values sorted from are not overwritten, so with more than
    one pass there is a second buffer of each.
    """
    if count <= SINGLE_TILE:
        return 1
    passes = -(-bits // RADIX_BITS)
    buffer = count if passes > 1 else 0
    parts = (
        passes * RADIX_DIGITS * OFFSET,  # bins
        -(-count // _onesweep_tile(capability)) * RADIX_DIGITS * COUNTER,  # lookback
        buffer * KEY,
        buffer * VALUE,
        passes * COUNTER,
    )
    return sum(-(-part // ALIGNMENT) * ALIGNMENT for part in parts) + ALIGNMENT - 1


def _onesweep_tile(capability: tuple[int, int]) -> int:
    """Pairs of a tile: threads times pairs of 8 bytes each (cub/device/dispatch/tuning/tuning_radix_sort.cuh)."""
    if capability >= (9, 0):
        return 384 * 12
    if capability >= (8, 0):
        return 384 * 10
    return 256 * 11


def sort_with_positions(
    count: int, bits: int, capability: tuple[int, int], *, range_stays: bool
) -> tuple[tuple[Piece, ...], ...]:
    """What PyTorch takes to sort indices and learn where they were: two stages before the output.

    The numbers to sort along (``range``) stay where the source keeps them in the scope of the whole operator.
    """
    nbytes = count * KEY
    return (
        (Piece("sorted_indices", nbytes), Piece("orig_indices", nbytes)),
        (
            Piece("range", nbytes, range_stays),
            Piece("temporary storage of the radix sort", radix_sort_bytes(count, bits, capability), stays=False),
        ),
    )


def index_put_scratch(count: int, rows: int, copied: int, capability: tuple[int, int]) -> Scratch:
    """``index_put_with_sort_kernel`` of Indexing.cu: ``index_put_(accumulate=True)``, the backward of indexing.

    A recorded training step of torch 2.11 (512 indices) has these very allocations, in this order.

    Args:
        count: indices.
        rows: rows of the tensor that is written to; the sort looks at as many bits as their number has.
        copied: bytes of the values, where they are not contiguous or broadcast (0 where they are used as they are).
        capability: of the card.
    """
    nbytes = count * KEY
    wrapped = Piece("index, wrapped", nbytes, stays=False)
    linear = (wrapped, Piece("linearIndex", nbytes)), (Piece("expandedValue", copied),)
    bits = max(1, rows.bit_length())  # get_num_bits of the largest row
    return Scratch(before=(*linear, *sort_with_positions(count, bits, capability, range_stays=True)))
