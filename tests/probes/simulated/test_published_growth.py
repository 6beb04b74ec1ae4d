"""How activations grow: linear in the batch, quadratic in the length where scores are kept, linear where not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from memdoctor.records import Attention, Dtype, Precision

HEADS, LAYERS = 4, 1
F32 = 4

EFFICIENT = pytest.param("7.5", {}, id="memory-efficient")
FLASH = pytest.param("8.0", {"precision": Precision.BF16}, id="flash")
EAGER = pytest.param("7.5", {"attention": Attention.EAGER}, id="eager")
MATH = pytest.param("7.5", {"dtype": Dtype.BFLOAT16}, id="math")


@pytest.fixture(scope="module")
def kept(probed: Callable[..., Any], small_bert: Callable[..., Any]) -> Callable[..., int]:
    """``kept(batch, length, ...)``: bytes of activations of the whole model at the end of forward."""

    def activations(batch: int, length: int, capability: str, settings: dict[str, Any]) -> int:
        config = small_bert(num_hidden_layers=LAYERS)
        shape = {"batch_size": batch, "seq_length": length}
        run = probed(config, capability=capability, steps=1, optimizer="sgd", **shape, **settings)
        nbytes: int = run.held(run.end("forward"))["activations"]
        return nbytes

    return activations


def differences(values: list[int], order: int) -> list[int]:
    """The differences between neighbours, ``order`` times over: all zero above the degree of a polynomial."""
    for _ in range(order):
        values = [after - before for before, after in pairwise(values)]
    return values


@pytest.mark.parametrize(("capability", "settings"), [EFFICIENT, FLASH, EAGER, MATH])
def test_linear_in_the_batch(kept: Callable[..., int], capability: str, settings: dict[str, Any]) -> None:
    by_batch = [kept(batch, 40, capability, settings) for batch in (1, 2, 3, 4)]
    assert differences(by_batch, 2) == [0, 0]


# Bytes of a score: softmax's output, dropout's mask and output; the math kernel computes bf16 in fp32.
@pytest.mark.parametrize(("capability", "settings"), [EAGER, MATH])
def test_quadratic_in_the_length_with_9_bytes_a_score(
    kept: Callable[..., int], capability: str, settings: dict[str, Any]
) -> None:
    batch, step = 2, 24
    by_length = [kept(batch, length, capability, settings) for length in (24, 48, 72, 96)]
    quadratic = 2 * step * step * batch * HEADS * LAYERS * (F32 + 1 + F32)
    assert differences(by_length, 2) == [quadratic, quadratic]  # so three lengths foretell the fourth


def test_linear_in_the_length_with_flash(kept: Callable[..., int]) -> None:
    by_length = [kept(2, length, *FLASH.values) for length in (23, 46, 69, 92)]
    assert differences(by_length, 2) == [0, 0]


def test_linear_in_the_length_with_memory_efficient_attention_but_for_its_log_sum_exp(
    kept: Callable[..., int],
) -> None:
    lengths = (20, 40, 60, 80)
    by_length = [kept(2, length, *EFFICIENT.values) for length in lengths]
    rounded = [2 * HEADS * LAYERS * -(-length // 32) * 32 * F32 for length in lengths]  # kAlignLSE, in rows
    assert differences(rounded, 2) == [-1024, 1024]
    assert differences(by_length, 2) == differences(rounded, 2)
