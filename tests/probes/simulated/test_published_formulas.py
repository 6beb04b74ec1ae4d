"""The formulas of Korthikanti et al. 2022 (arXiv 2205.05198, section 4), held against BERT with weights of 16 bits.

Their layer keeps ``sbh (34 + 5 as/h)`` bytes: attention ``11 sbh + 5 as²b``, the feed-forward ``19 sbh``, layer norms
``4 sbh``, where ``s`` is the length, ``b`` the batch, ``h`` the width and ``a`` the number of heads. They leave out
what is small against these: each norm's mean and deviation, 8 bytes a token, which PyTorch keeps in fp32 whatever the
input. That BERT has its norms after the residuals and not before them changes no term.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import Attention, Block, Dtype

LAYER = "bert.encoder.layer."
SHAPES = [(48, 3, 64, 4), (96, 1, 64, 2), (32, 5, 128, 8)]  # s, b, h, a
each_shape = pytest.mark.parametrize(("s", "b", "h", "a"), SHAPES)


@pytest.fixture(scope="module")
def bert(probed: Callable[..., Any], small_bert: Callable[..., Any]) -> Callable[..., list[Block]]:
    """``bert(s, b, h, a, ...)``: the activations of a BERT of two layers with bf16 weights, at the end of forward."""

    def activations(s: int, b: int, h: int, a: int, layers: int = 2, **settings: Any) -> list[Block]:
        config = small_bert(
            hidden_size=h, num_attention_heads=a, intermediate_size=4 * h, num_hidden_layers=layers
        )  # fmt: skip
        run = probed(
            config, batch_size=b, seq_length=s, dtype=Dtype.BFLOAT16, capability="8.0", steps=1, optimizer="sgd",
            **{"attention": Attention.EAGER, **settings},
        )  # fmt: skip
        return [block for block in run.alive(run.end("forward")) if block.category.value == "activations"]

    return activations


OPERANDS = "attention: query, key, value, and the projection's input"


def term(block: Block) -> str | None:
    """The paper's name of what a block of the second layer is; its input is the first layer's output.

    Products of attention read contiguous copies of query, key and value; where the batch is 1, themselves.
    """
    kind = block.op.removeprefix("aten.").split(".")[0]
    if block.dtype == "float32":
        return "statistics"
    if (block.module, kind) == (LAYER + "0.output.LayerNorm", "native_layer_norm"):
        return "attention: input"
    inside = block.module.removeprefix(LAYER + "1.")
    return {
        ("attention.self", "clone"): OPERANDS,
        **{(f"attention.self.{name}", "addmm"): OPERANDS for name in ("query", "key", "value")},
        ("attention.self", "_softmax"): "attention: softmax's output",
        ("attention.self", "native_dropout"): "attention: dropout's " + ("mask" if block.dtype == "bool" else "output"),
        ("attention.output.dropout", "native_dropout"): "attention: mask",
        ("attention.output", "add"): "norms: input",
        ("attention.output.LayerNorm", "native_layer_norm"): "feed-forward: input",
        ("intermediate.dense", "addmm"): "feed-forward: GELU's input",
        ("intermediate.intermediate_act_fn", "gelu"): "feed-forward: GELU's output",
        ("output.dropout", "native_dropout"): "feed-forward: mask",
        ("output", "add"): "norms: input",
    }.get((inside, kind))


def terms(blocks: list[Block]) -> dict[str, int]:
    """Bytes by term, of the second layer."""
    total: dict[str, int] = {}
    for block in blocks:
        name = term(block)
        if name is not None and (block.dtype != "float32" or block.module.startswith(LAYER + "1.")):
            total[name] = total.get(name, 0) + block.bytes
    return total


@each_shape
def test_every_term_of_a_layer(bert: Callable[..., Any], s: int, b: int, h: int, a: int) -> None:
    assert terms(bert(s, b, h, a)) == {
        "attention: input": 2 * s * b * h,
        OPERANDS: (2 + 2 + 2 + 2) * s * b * h,
        "attention: softmax's output": 2 * a * s * s * b,
        "attention: dropout's mask": a * s * s * b,
        "attention: dropout's output": 2 * a * s * s * b,
        "attention: mask": s * b * h,
        "feed-forward: input": 2 * s * b * h,
        "feed-forward: GELU's input": 8 * s * b * h,
        "feed-forward: GELU's output": 8 * s * b * h,
        "feed-forward: mask": s * b * h,
        "norms: input": 2 * 2 * s * b * h,
        "statistics": 2 * (4 + 4) * s * b,
    }


@each_shape
def test_a_layer_in_all(bert: Callable[..., Any], s: int, b: int, h: int, a: int) -> None:
    one, two = (sum(block.bytes for block in bert(s, b, h, a, layers)) for layers in (1, 2))
    assert two - one == 34 * s * b * h + 5 * a * s * s * b + 16 * s * b


@each_shape
def test_without_what_selective_recomputation_drops(bert: Callable[..., Any], s: int, b: int, h: int, a: int) -> None:
    """``34 sbh`` (section 5): flash attention recomputes the same; it keeps rows' log-sum-exp, and its random state."""
    one, two = (sum(block.bytes for block in bert(s, b, h, a, layers, attention=Attention.SDPA)) for layers in (1, 2))
    assert two - one == 34 * s * b * h + 16 * s * b + 4 * a * s * b + 24


@each_shape
def test_full_recomputation_keeps_2_sbh_a_layer(bert: Callable[..., Any], s: int, b: int, h: int, a: int) -> None:
    kept = [sum(block.bytes for block in bert(s, b, h, a, n, gradient_checkpointing=True)) for n in (1, 2, 3)]
    assert [kept[1] - kept[0], kept[2] - kept[1]] == [2 * s * b * h, 2 * s * b * h]


@each_shape
def test_the_embeddings_dropout_keeps_a_mask_of_sbh(bert: Callable[..., Any], s: int, b: int, h: int, a: int) -> None:
    masks = [block.bytes for block in bert(s, b, h, a) if block.module == "bert.embeddings.dropout"]
    assert sorted(masks) == [s * b * h, 2 * s * b * h]  # and its output, the first layer's input
