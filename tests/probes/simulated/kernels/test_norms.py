"""Layer norm's backward and the norms of gradients."""

from __future__ import annotations

from memdoctor.probes.scratch import Piece, Scratch
from memdoctor.probes.simulated.kernels.norms import foreach_norm_scratch, layer_norm_backward_scratch
from memdoctor.probes.simulated.processors import Processors

T4, A100 = Processors(40, 1024), Processors(108, 2048)
F32 = 4


def test_layer_norm_sums_up_to_65536_rows_in_one_step() -> None:
    assert layer_norm_backward_scratch(65_536, 768, F32, A100) == Scratch()


def test_layer_norm_sums_wide_rows_in_one_step() -> None:
    assert layer_norm_backward_scratch(70_000, 768, F32, T4) == Scratch()  # 768 / 32 = 24 warps, a T4 has 40 / 2


def test_layer_norm_sums_many_narrow_rows_in_two_steps() -> None:
    # 24 warps of 108 / 2: blocks of 32 rows, at most 32,768 / 24 = 1365 of them.
    scratch = layer_norm_backward_scratch(70_000, 768, F32, A100)
    partial = 1365 * 768 * F32
    assert scratch.after[0] == (Piece("dgamma_blocks", partial), Piece("dbeta_blocks", partial))
    # The sum over the blocks: 4 rows of threads, ceil(1365 / 4) = 342 values each, 6 blocks, ceil(342 / 16) share.
    buffer = Piece("staging buffer", F32 * 768 * 22 * 128, stays=False)
    assert scratch.after[1] == (buffer, Piece("semaphores", 24, stays=False))


def test_layer_norm_in_two_steps_takes_no_more_blocks_than_rows() -> None:
    partials, _ = layer_norm_backward_scratch(65_537, 64, F32, A100).after
    assert partials[0].bytes == 2049 * 64 * F32  # 65,537 rows in blocks of 32


def test_every_tensor_has_as_many_places_as_the_largest_has_chunks() -> None:
    # 131,073 elements are three chunks of 65,536.
    assert foreach_norm_scratch([131_073, 10, 65_536]) == Scratch(before=((Piece("output_per_tensor", 3 * 3 * F32),),))


def test_no_tensors_need_no_places() -> None:
    assert foreach_norm_scratch([]).peak == 0
