"""Staging buffers of reductions, worked out from ``setReduceConfig`` in Reduce.cuh."""

from __future__ import annotations

import pytest

from memdoctor.probes.scratch import Piece, Scratch
from memdoctor.probes.simulated.kernels.reduction import reduction_scratch
from memdoctor.probes.simulated.processors import Processors

T4, A100, H100 = Processors(40, 1024), Processors(108, 2048), Processors(132, 2048)
F32 = 4


def staging(scratch: Scratch) -> tuple[int, int]:
    """Bytes of the buffer and of the semaphores."""
    ((buffer, semaphores),) = scratch.after
    return buffer.bytes, semaphores.bytes


@pytest.mark.parametrize(
    ("rows", "width", "processors", "sharing", "blocks"),
    [
        # Four columns a thread, 32 threads wide and 4 high: 768 columns are 6 blocks. Each thread would sum 4096 / 4
        # rows. The card runs 40 x 1024 / 128 = 320 blocks, so ceil(320 / 6) share a column.
        (4096, 768, T4, 54, 6),
        (4096, 3072, T4, 14, 24),  # ceil(320 / 24)
        # 108 x 2048 / 128 = 1728 blocks, but each thread is to keep 16 values: ceil(1024 / 16).
        (4096, 768, A100, 64, 6),
        (1024, 768, T4, 16, 6),  # 256 values a thread: ceil(256 / 16)
    ],
)
def test_the_gradient_of_a_bias(rows: int, width: int, processors: Processors, sharing: int, blocks: int) -> None:
    scratch = reduction_scratch((rows, width), (width, 1), (0,), F32, processors)
    # A place for each column in each of the threads of a row of the block, and each of its four columns.
    assert staging(scratch) == (F32 * width * sharing * 32 * 4, 4 * blocks)


@pytest.mark.parametrize(("accumulator", "recorded"), [(4, 41_156_608), (16, 164_626_432)])
def test_sum_and_max_take_what_was_recorded_on_a_gpu(accumulator: int, recorded: int) -> None:
    # A public recording of a training step (compute capability 9.0): the sum, and the largest with its place, of 10,000
    # logits for each of 512 tokens, which lie in memory with the tokens innermost. 157 blocks share a token, for each
    # thread is to keep 16 of its 2,500 values. Four semaphores.
    scratch = reduction_scratch((4, 128, 10_000), (128, 1, 512), (2,), accumulator, H100)
    assert staging(scratch) == (recorded, 16)


def test_leading_dimensions_are_one() -> None:
    apart = reduction_scratch((8, 512, 768), (512 * 768, 768, 1), (0, 1), F32, T4)
    assert apart == reduction_scratch((4096, 768), (768, 1), (0,), F32, T4)
    assert staging(apart) == (F32 * 768 * 54 * 128, 24)


def test_few_rows_need_no_buffer() -> None:
    assert reduction_scratch((1020, 768), (768, 1), (0,), F32, T4) == Scratch()  # 255 for each of 4 threads
    assert reduction_scratch((63, 768), (768, 1), (0,), F32, T4) == Scratch()


def test_more_outputs_than_blocks_need_no_buffer() -> None:
    width = 128 * 321  # one block more than a T4 runs
    assert reduction_scratch((4096, width), (width, 1), (0,), F32, T4) == Scratch()


def test_a_sum_over_everything_takes_one_place_a_block() -> None:
    # 512 threads wide: 4,194,304 / 512 = 8192 values a thread; the card runs 40 x 1024 / 512 = 80 blocks.
    assert staging(reduction_scratch((4096, 1024), (1024, 1), (0, 1), F32, T4)) == (F32 * 80, 4)


def test_nothing_named_means_everything() -> None:
    everything = reduction_scratch((4096, 1024), (1024, 1), (0, 1), F32, T4)
    assert reduction_scratch((4096, 1024), (1024, 1), (), F32, T4) == everything


def test_sums_of_rows_need_no_buffer() -> None:
    assert reduction_scratch((4096, 768), (768, 1), (1,), F32, T4) == Scratch()


def test_one_long_row_is_shared() -> None:
    # 32 threads wide, 1 high becomes 512 wide: 1,048,576 / 512 = 2048 values a thread, 80 blocks on the card.
    assert staging(reduction_scratch((1, 1 << 20), (1 << 20, 1), (1,), F32, T4)) == (F32 * 80, 4)


def test_columns_that_do_not_divide_by_four_are_taken_singly() -> None:
    # One column a thread: 512 threads, 32 wide and 16 high; 8192 / 16 = 512 values a thread; 80 blocks run at once;
    # 2 columns are one block of two threads wide and 256 high: 8192 / 256 = 32 values a thread: none to share.
    assert reduction_scratch((8192, 2), (2, 1), (0,), F32, T4) == Scratch()
    # 33 columns: 32 wide, 16 high, two blocks; 40 would share, but each thread keeps 16 values: ceil(512 / 16) = 32.
    assert staging(reduction_scratch((8192, 33), (33, 1), (0,), F32, T4)) == (F32 * 33 * 32 * 32, 8)


@pytest.mark.parametrize("shape", [(), (1, 1), (0, 8)])
def test_nothing_to_add_needs_no_buffer(shape: tuple[int, ...]) -> None:
    assert reduction_scratch(shape, (1,) * len(shape), (), F32, T4) == Scratch()


def test_the_buffer_comes_after_the_output() -> None:
    scratch = reduction_scratch((4096, 768), (768, 1), (0,), F32, T4)
    assert scratch == Scratch(after=((Piece("staging buffer", 21_233_664), Piece("semaphores", 24)),))
