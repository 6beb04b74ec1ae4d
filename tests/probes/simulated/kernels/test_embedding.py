"""The backward of an embedding, worked out from Embedding.cu and EmbeddingBackwardKernel.cu."""

from __future__ import annotations

import pytest

from memdoctor.probes.scratch import Piece, Scratch
from memdoctor.probes.simulated.kernels.embedding import embedding_backward_scratch
from memdoctor.probes.simulated.kernels.sorting import sort_with_positions
from memdoctor.probes.simulated.processors import Processors

T4 = Processors(40, 1024)
F16, F32, I64 = 2, 4, 8


@pytest.mark.parametrize("indices", [1, 3072])
def test_up_to_3072_indices_are_added_in_place(indices: int) -> None:
    assert embedding_backward_scratch(indices, 30522, 768, F32, (7, 5), T4) == Scratch()


@pytest.mark.parametrize("itemsize", [F16, F32])
def test_a_vocabulary_is_summed_in_fp32_by_groups_of_ten(itemsize: int) -> None:
    # 4096 tokens hit at most 4096 rows: 4096 // 10 + 4096 partial sums.
    scratch = embedding_backward_scratch(4096, 30522, 768, itemsize, (7, 5), T4)
    assert scratch.before == sort_with_positions(4096, 64, (7, 5), range_stays=False)
    assert scratch.after == (
        (
            Piece("segment_offsets", 4096 * I64),
            Piece("num_of_segments", 8),
            Piece("partials_per_segment", 4096 * I64),
            Piece("partials_per_segment_offset", 4096 * I64),
            Piece("num_of_partial_segments", 8),
            Piece("partial_segment_offset", 4505 * I64),
            Piece("grad_weight_per_segment", 4505 * 768 * F32),
        ),
    )
    sums = 3 * 32_768 + 16 + 36_040 + 13_839_360
    assert scratch.peak == 2 * 32_768 + sums


@pytest.mark.parametrize(("itemsize", "copy"), [(F32, 0), (F16, 2 * 768 * F32)])
def test_token_types_are_added_atomically(itemsize: int, copy: int) -> None:
    # Two rows of 768 are two blocks of threads, fewer than the card can run; 4096 // 10 + 2 partial sums.
    scratch = embedding_backward_scratch(4096, 2, 768, itemsize, (7, 5), T4)
    sums = scratch.after[0][-2:]
    assert sums == (Piece("partial_to_segment_idx", 411 * I64), Piece("grad_weight_acc", copy))


def test_a_table_of_many_rows_is_not_added_atomically() -> None:
    # 200 rows are 200 blocks: more than 4 for each of 40 processors.
    scratch = embedding_backward_scratch(65_536, 200, 768, F32, (7, 5), T4)
    assert scratch.after[0][-1] == Piece("grad_weight_per_segment", (6553 + 200) * 768 * F32)
