"""What attention kernels take, worked out from flash_api.cpp, attention_backward.cu and kernel_backward.h."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memdoctor.probes.scratch import Piece, Scratch
from memdoctor.probes.simulated.kernels.attention import (
    Heads,
    cudnn_backward_scratch,
    efficient_backward_scratch,
    efficient_forward_scratch,
    flash_backward_scratch,
    flash_forward_scratch,
    safe_softmax_scratch,
)
from memdoctor.probes.simulated.processors import Processors

A100 = Processors(108, 2048)
F16, F32 = 2, 4

# BERT-base, batch 8 and length 512
BERT = Heads(batch=8, count=12, queries=512, keys=512, size=64, value_size=64, itemsize=F32, key_heads=12)
HALF = replace(BERT, itemsize=F16)


def pieces(scratch: Scratch) -> list[Piece]:
    return [piece for stage in (*scratch.before, *scratch.after) for piece in stage if piece.bytes]


# Flash attention


def test_flash_backward_accumulates_the_querys_gradient_in_fp32() -> None:
    rows = 8 * 512 * 12
    assert pieces(flash_backward_scratch(HALF, copied=0)) == [
        Piece("softmax_d", rows * F32),
        Piece("dq_accum", rows * 64 * F32),
    ]
    assert flash_backward_scratch(HALF, copied=0).peak == 196_608 + 12_582_912


@pytest.mark.parametrize(
    ("queries", "size", "padded_queries", "padded_size"),
    [(1, 8, 128, 32), (128, 32, 128, 32), (129, 72, 256, 96), (100, 136, 128, 192), (100, 256, 128, 256)],
)
def test_flash_backward_rounds_queries_to_128_and_heads_to_32_or_64(
    queries: int, size: int, padded_queries: int, padded_size: int
) -> None:
    heads = replace(HALF, batch=2, count=3, queries=queries, size=size, value_size=size, key_heads=3)
    softmax_d, dq_accum = pieces(flash_backward_scratch(heads, copied=0))
    assert softmax_d.bytes == 2 * 3 * padded_queries * F32
    assert dq_accum.bytes == 2 * 3 * padded_queries * padded_size * F32


def test_flash_backward_copies_first_and_expands_shared_keys() -> None:
    scratch = flash_backward_scratch(replace(HALF, key_heads=4), copied=1000)
    assert scratch.before == ((Piece("contiguous_grad_out and contiguous_out", 1000),),)
    expanded = 8 * 512 * 12 * 64 * F16
    assert scratch.after[0][2:] == (Piece("dk_expanded", expanded), Piece("dv_expanded", expanded))


def test_flash_forward_with_dropout_makes_its_random_state_twice() -> None:
    assert pieces(flash_forward_scratch(HALF, 0.1, A100)) == [Piece("rng_state, replaced", 16)]


def test_flash_forward_with_work_for_the_card_splits_no_keys() -> None:
    assert flash_forward_scratch(HALF, 0.0, A100) == Scratch()  # 8 x 12 x 8 blocks, an A100 has 216 places


def test_flash_forward_of_few_queries_splits_the_keys() -> None:
    # One sample with two heads and 64 queries is 2 blocks; 2048 keys are 8 blocks of 256. One to eight splits of
    # which those that change the blocks per split count: 1, 2, 3, 4, 8. More splits are more even: 8 is best at
    # 16 / 216, and is the first within 15 % of that.
    heads = Heads(1, 2, 64, 2048, 64, 64, F16, 2)
    lse, out = pieces(flash_forward_scratch(heads, 0.0, A100))
    assert lse == Piece("softmax_lse_accum", 8 * 1 * 2 * 64 * F32)
    assert out == Piece("out_accum", 8 * 1 * 2 * 64 * 64 * F32)


# Memory-efficient attention


def test_efficient_forward_accumulates_only_large_heads_of_16_bits() -> None:
    assert efficient_forward_scratch(BERT) == efficient_forward_scratch(HALF) == Scratch()
    assert efficient_forward_scratch(replace(BERT, value_size=256)) == Scratch()
    large = efficient_forward_scratch(replace(HALF, size=256, value_size=256))
    assert pieces(large) == [Piece("output_accum", 8 * 12 * 512 * 256 * F32)]


TILE = 16 + 64 * 64 * F32  # lock, counter and padding, and a tile of 64 x 64: 16,400 bytes
WORKSPACE = 8 * 12 * 8 * TILE  # 8 tiles of 64 queries in each head


@pytest.mark.parametrize("capability", [(7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (12, 0)])
def test_efficient_backward_in_fp32_lets_aten_make_delta(capability: tuple[int, int]) -> None:
    rows = 8 * 12 * 512
    assert pieces(efficient_backward_scratch(BERT, 0, capability)) == [
        Piece("grad_out * out", rows * 64 * F32, stays=False),
        Piece("sum of grad_out * out", rows * F32, stays=False),
        Piece("delta", rows * F32),
        Piece("workspace", WORKSPACE),
    ]
    assert WORKSPACE == 12_595_200
    assert efficient_backward_scratch(BERT, 0, capability).peak == 12_582_912 + 2 * 196_608  # before the workspace


@pytest.mark.parametrize("capability", [(7, 0), (7, 5), (8, 0), (9, 0)])
def test_efficient_backward_in_16_bits_computes_delta_itself(capability: tuple[int, int]) -> None:
    delta = Piece("delta", 8 * 12 * 512 * F32)
    assert pieces(efficient_backward_scratch(HALF, 0, capability)) == [delta, Piece("workspace", WORKSPACE)]


def test_efficient_backward_on_pascal_accumulates_only_16_bits() -> None:
    assert pieces(efficient_backward_scratch(BERT, 0, (6, 1)))[-1] == Piece("delta", 8 * 12 * 512 * F32)
    assert pieces(efficient_backward_scratch(HALF, 0, (6, 1)))[-1] == Piece("workspace", WORKSPACE)


def test_efficient_backward_of_one_head_needs_no_second_delta() -> None:
    one = replace(BERT, count=1, key_heads=1)
    assert [piece.name for piece in pieces(efficient_backward_scratch(one, 0, (7, 5)))] == [
        "grad_out * out", "delta", "workspace",
    ]  # fmt: skip


def test_efficient_backward_copies_a_gradient_that_is_not_contiguous() -> None:
    scratch = efficient_backward_scratch(HALF, 4096, (8, 0))
    assert scratch.before == ((Piece("grad_out", 4096),),)


def test_efficient_backward_of_shared_keys_makes_gradients_for_each_head_of_queries() -> None:
    heads = replace(HALF, size=32, value_size=64, key_heads=4)
    own = pieces(efficient_backward_scratch(replace(heads, key_heads=12), 0, (8, 0)))
    shared = pieces(efficient_backward_scratch(heads, 0, (8, 0)))
    keys = 8 * 512 * 12  # samples, keys, heads of queries
    assert shared == [
        Piece("grad_k of each head", keys * 32 * F16), Piece("grad_v of each head", keys * 64 * F16), *own,
    ]  # fmt: skip


def test_efficient_backward_of_large_heads_accumulates_keys_and_values_as_well() -> None:
    # A head of 128 on a T4 in fp16: blocks of 64 x 64 take more than blocks of 128 x 64, which keep gradients of keys
    # and values in registers. 512 / 64 = 8 splits of the keys, fewer than 200 // 4.
    heads = Heads(2, 2, 512, 512, 128, 128, F16, 2)
    keys_and_values = 8 * 64 * (128 + 128)
    queries = 8 * 2 * (4 + 64 * 64)
    assert pieces(efficient_backward_scratch(heads, 0, (7, 5)))[-1].bytes == 4 * (keys_and_values + queries) * F32


def test_efficient_backward_of_large_heads_on_volta_in_fp16_lets_aten_make_delta() -> None:
    heads = Heads(2, 2, 512, 512, 256, 256, F16, 2)
    product = 2 * 2 * 512 * 256 * F32
    first = pieces(efficient_backward_scratch(heads, 0, (7, 0)))[:3]
    assert first == [
        Piece(name, product, stays=False) for name in ("grad_out.to(float)", "out.to(float)", "grad_out * out")
    ]


# cuDNN and the math kernel


def test_cudnns_plan_is_estimated_by_an_fp32_gradient_and_a_sum_for_each_query() -> None:
    assert cudnn_backward_scratch(HALF).peak == 8 * 12 * 512 * 64 * F32 + 8 * 12 * 512 * F32


def test_safe_softmax_holds_a_softmax_a_mask_and_which_rows_are_masked() -> None:
    scores, rows = 8 * 12 * 512 * 512, 8 * 12 * 512
    assert safe_softmax_scratch(scores, rows, F32).peak == scores * F32 + scores + rows + F32
