"""What a layer of BERT keeps for backward, worked out by hand for every kernel, precision and kind of checkpointing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from memdoctor.records import Attention, Dtype, Precision

F16, F32, BOOL = 2, 4, 1
BATCH, LENGTH, WIDTH, HEADS, INNER = 3, 48, 64, 4, 256
TOKENS = BATCH * LENGTH
STATE = TOKENS * WIDTH  # elements of one hidden state
SCORES = BATCH * HEADS * LENGTH * LENGTH
ROWS = BATCH * HEADS * LENGTH  # of scores

NORMS = 2 * 2 * TOKENS * F32  # the mean and the deviation of each token, fp32 in every precision
MASKS = 2 * STATE * BOOL  # of the two dropouts on hidden states

# What attention keeps beside query, key, value and its output.
EFFICIENT = BATCH * HEADS * 64 * F32  # the log-sum-exp of each row, the length rounded up to 32
FLASH = ROWS * F32 + 2 * 8 + 8  # the same, not rounded; seed and offset, and a word that is not used
EAGER_32 = SCORES * (F32 + BOOL + F32)  # softmax's output, dropout's mask and output
EAGER_16 = SCORES * (F16 + BOOL + F16)
EAGER_AUTOCAST = SCORES * (F32 + BOOL + F16)  # softmax is fp32 under autocast; dropout reads a 16-bit copy


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes of one layer: attention's own, and an element's in what it multiplies, in the norms, and in the copies.

    ``operand`` is of query, key, value, context, and GELU's input and output. ``residual`` is of the norms' inputs.
    ``state`` is of what the next products read: the norms' outputs, or under autocast the copies made of them, one
    for each of query, key, value and the feed-forward.
    """

    attention: int
    operand: int
    residual: int
    state: int
    states: int = 2

    @property
    def nbytes(self) -> int:
        operands = (4 * STATE + 2 * TOKENS * INNER) * self.operand
        return self.attention + operands + 2 * STATE * self.residual + self.states * STATE * self.state + NORMS + MASKS


def fp32(attention: int) -> Kept:
    return Kept(attention, F32, F32, F32)


def autocast(attention: int) -> Kept:
    return Kept(attention, F16, F32, F16, states=4)


def weights_of_16_bits(attention: int) -> Kept:
    return Kept(attention, F16, F16, F16)


# The math kernel computes bf16 in fp32: copies of query, key and value, and scores, of twice the width.
MATH = 3 * STATE * (F32 - F16) + EAGER_32

FP16, BF16 = {"precision": Precision.FP16}, {"precision": Precision.BF16}
HALF, BRAIN = {"dtype": Dtype.FLOAT16}, {"dtype": Dtype.BFLOAT16}
EAGER: dict[str, Any] = {"attention": Attention.EAGER}

CASES = [
    ("fp32, 7.5", "7.5", {}, fp32(EFFICIENT)),
    ("fp32, 8.0", "8.0", {}, fp32(EFFICIENT)),
    ("fp32, eager", "8.0", EAGER, fp32(EAGER_32)),
    ("fp16 autocast, 7.5", "7.5", FP16, autocast(EFFICIENT)),
    ("fp16 autocast, 8.0", "8.0", FP16, autocast(FLASH)),
    ("fp16 autocast, eager", "7.5", FP16 | EAGER, autocast(EAGER_AUTOCAST)),
    ("bf16 autocast, 7.5", "7.5", BF16, autocast(MATH)),
    ("bf16 autocast, 8.0", "8.0", BF16, autocast(FLASH)),
    ("bf16 autocast, eager", "8.0", BF16 | EAGER, autocast(EAGER_AUTOCAST)),
    ("fp16 weights, 7.5", "7.5", HALF, weights_of_16_bits(EFFICIENT)),
    ("fp16 weights, 8.0", "8.0", HALF, weights_of_16_bits(FLASH)),
    ("fp16 weights, eager", "7.5", HALF | EAGER, weights_of_16_bits(EAGER_16)),
    ("bf16 weights, 7.5", "7.5", BRAIN, weights_of_16_bits(MATH)),
    ("bf16 weights, 8.0", "8.0", BRAIN, weights_of_16_bits(FLASH)),
    ("bf16 weights, eager", "8.0", BRAIN | EAGER, weights_of_16_bits(EAGER_16)),
]


@pytest.fixture(scope="module")
def layers(probed: Callable[..., Any], small_bert: Callable[..., Any]) -> Callable[..., Any]:
    """``layers(count, ...)``: one step of a BERT of so many layers."""

    def run(count: int, **settings: Any) -> Any:
        config = small_bert(num_hidden_layers=count)
        return probed(config, batch_size=BATCH, seq_length=LENGTH, steps=1, optimizer="sgd", **settings)

    return run


def at_forwards_end(run: Any) -> int:
    nbytes: int = run.held(run.end("forward"))["activations"]
    return nbytes


@pytest.mark.parametrize(
    ("capability", "settings", "kept"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_layer_keeps(layers: Callable[..., Any], capability: str, settings: dict[str, Any], kept: Kept) -> None:
    one, two = (at_forwards_end(layers(count, capability=capability, **settings)) for count in (1, 2))
    assert two - one == kept.nbytes


@pytest.mark.parametrize(
    ("capability", "settings", "kept"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_checkpointed_it_keeps_its_input(
    layers: Callable[..., Any], capability: str, settings: dict[str, Any], kept: Kept
) -> None:
    """A norm's output, whatever the attention: fp32 unless the weights are not, under autocast too."""
    one, two, other = (
        at_forwards_end(layers(count, capability=capability, gradient_checkpointing=True, **settings, **kind))
        for count, kind in ((1, {}), (2, {}), (2, {"use_reentrant": True}))
    )
    assert two - one == STATE * kept.residual
    assert other == two
