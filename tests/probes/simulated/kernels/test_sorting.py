"""CUB's radix sort: its temporary storage, added up part by part."""

from __future__ import annotations

import pytest

from memdoctor.probes.scratch import Piece
from memdoctor.probes.simulated.kernels.sorting import index_put_scratch, radix_sort_bytes, sort_with_positions

I64 = 8


@pytest.mark.parametrize("count", [1, 2304])
def test_one_tile_is_sorted_in_place_and_a_byte_is_asked_for(count: int) -> None:
    assert radix_sort_bytes(count, 64, (7, 5)) == 1


@pytest.mark.parametrize(
    ("capability", "tiles"),
    [
        ((7, 5), 2),  # 4096 pairs in tiles of 256 x 11 = 2816
        ((8, 0), 2),  # of 384 x 10 = 3840
        ((9, 0), 1),  # of 384 x 12 = 4608
        ((10, 0), 1),
    ],
)
def test_more_take_bins_lookback_and_a_second_buffer(capability: tuple[int, int], tiles: int) -> None:
    bins = 8 * 256 * 8  # 8 passes of 8 bits, 256 digits, 64-bit offsets
    lookback = tiles * 256 * 4
    buffers = 4096 * I64 + 4096 * I64
    counters = 256  # 8 passes x 4 bytes, rounded up
    expected = bins + lookback + buffers + counters + 255  # and what the start may have to move by
    assert radix_sort_bytes(4096, 64, capability) == expected


def test_fewer_bits_take_fewer_passes() -> None:
    # 9 bits are two passes; with 8 there is nothing to sort back and forth.
    assert radix_sort_bytes(4096, 9, (8, 0)) == 2 * 256 * 8 + 2 * 256 * 4 + 2 * 4096 * I64 + 256 + 255
    assert radix_sort_bytes(4096, 8, (8, 0)) == 1 * 256 * 8 + 2 * 256 * 4 + 256 + 255


def test_a_sort_with_positions_has_three_arrays_and_cubs_storage_before_the_output() -> None:
    storage = radix_sort_bytes(5000, 64, (8, 0))
    assert sort_with_positions(5000, 64, (8, 0), range_stays=False) == (
        (Piece("sorted_indices", 40_000), Piece("orig_indices", 40_000)),
        (Piece("range", 40_000, stays=False), Piece("temporary storage of the radix sort", storage, stays=False)),
    )


def test_indexings_backward_sorts_by_the_bits_of_the_rows() -> None:
    scratch = index_put_scratch(5000, 512, 0, (8, 0))  # 512 rows: 10 bits, two passes
    storage = 2 * 256 * 8 + 2 * 1024 + 2 * 40_000 + 2 * 192 + 256 + 255  # 40,000 bytes are rounded up to 40,192
    assert radix_sort_bytes(5000, 10, (8, 0)) == storage
    assert scratch.peak == 40_000 + 2 * 40_000 + 40_000 + storage  # linear, sorted and original; range
    assert scratch.after == ()


def test_indexings_backward_copies_values_that_are_broadcast() -> None:
    assert index_put_scratch(100, 8, 4096, (8, 0)).peak == index_put_scratch(100, 8, 0, (8, 0)).peak + 4096


def test_indexings_backward_allocates_what_a_recorded_step_did() -> None:
    # A public recording of torch 2.11 training a language model: the backward of looking up 512 of 10,000 rows.
    scratch = index_put_scratch(512, 10_000, 0, (9, 0))
    assert [[(piece.bytes, piece.stays) for piece in stage if piece.bytes] for stage in scratch.before] == [
        [(4096, False), (4096, True)], [], [(4096, True), (4096, True)], [(4096, True), (1, False)],
    ]  # fmt: skip
