"""Scratch memory in a training step: alive beside the operator's outputs, and dead when it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from memdoctor.records import Block

F16, F32, I64 = 2, 4, 8


@dataclass(frozen=True, slots=True)
class Told:
    """A block that a kernel took, the operators' blocks alive at its birth, and whether it outlived the operator."""

    name: str
    bytes: int
    beside: tuple[str, ...]
    outlived: bool


def told(run: Any, operator: str) -> list[Told]:
    """What the kernels of ``operator`` took, in order."""
    blocks, events = run.timeline.blocks, run.timeline.events
    found, alive = [], set[int]()
    for instant, event in enumerate(events):
        block: Block = blocks[event.block]
        if event.delta_bytes < 0:
            alive.discard(event.block)
            continue
        alive.add(event.block)
        if block.op.startswith(f"aten.{operator}: "):
            beside = tuple(sorted(blocks[number].op for number in alive if blocks[number].op == f"aten.{operator}"))
            death = next(i for i in range(instant, len(events)) if events[i] == type(event)(event.block, -block.bytes))
            born_meanwhile = [blocks[e.block].op for e in events[instant:death] if e.delta_bytes > 0]
            others = [op for op in born_meanwhile if not op.startswith(f"aten.{operator}")]
            found.append(Told(block.op.split(": ")[1], block.bytes, beside, outlived=bool(others)))
    return found


class Toy(nn.Module):
    """The loss is the sum of what ``body`` makes of the input, which is multiplied by a weight first."""

    def __init__(self, body: Callable[..., torch.Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1))
        self.body = body
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.body(self, x).sum()}


def run_toy(train: Callable[..., Any], make: Callable[[], nn.Module], x: torch.Tensor, **settings: Any) -> Any:
    return train(make, {"x": x}, **settings)


B, H, S, D = 2, 3, 64, 16
TILE = 16 + 64 * 64 * F32


def attend(toy: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(*3 * [x * toy.weight.to(x.dtype)], dropout_p=0.1)


def test_memory_efficient_attention(train: Callable[..., Any]) -> None:
    run = run_toy(train, lambda: Toy(attend), torch.zeros(B, H, S, D), capability="7.5")
    backward = "_scaled_dot_product_efficient_attention_backward.default"
    outputs = (f"aten.{backward}",) * 3  # the gradients of query, key and value
    # The gradient of a sum is one number expanded: the kernel wants it written out.
    assert told(run, backward) == [
        Told("grad_out", B * H * S * D * F32, (), outlived=False),
        Told("grad_out * out", B * H * S * D * F32, outputs, outlived=False),
        Told("sum of grad_out * out", B * H * S * F32, outputs, outlived=False),
        Told("delta", B * H * S * F32, outputs, outlived=False),
        Told("workspace", B * H * TILE, outputs, outlived=False),
    ]


def test_flash_attention(train: Callable[..., Any]) -> None:
    x = torch.zeros(B, H, S, D, dtype=torch.bfloat16)
    run = run_toy(train, lambda: Toy(attend), x, capability="8.0")
    backward = "_scaled_dot_product_flash_attention_backward.default"
    outputs = (f"aten.{backward}",) * 3
    assert told(run, backward) == [
        # out is [batch, heads, ...] in memory here, as the query is, and the gradient is one number expanded.
        Told("contiguous_grad_out and contiguous_out", 2 * B * H * S * D * F16, (), outlived=False),
        Told("softmax_d", B * H * 128 * F32, outputs, outlived=False),
        Told("dq_accum", B * H * 128 * 32 * F32, outputs, outlived=False),
    ]
    forward = told(run, "_scaled_dot_product_flash_attention.default")
    assert [(piece.name, piece.bytes) for piece in forward] == [("rng_state, replaced", 16)]


def test_cudnn_attention(train: Callable[..., Any]) -> None:
    def attend_without_dropout(toy: Any, x: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(*3 * [x * toy.weight.to(x.dtype)])

    x = torch.zeros(B, H, S, D, dtype=torch.bfloat16)
    run = run_toy(train, lambda: Toy(attend_without_dropout), x, capability="9.0")
    forward = "aten._scaled_dot_product_cudnn_attention.default"
    # The output, a log-sum-exp for each query, and the random state, two numbers on the GPU (unpack_cudnn_wrapper).
    made = [block.bytes for block in run.born("forward") if block.op == forward]
    assert made == [B * H * S * D * F16, B * H * S * F32, I64, I64]
    backward = "_scaled_dot_product_cudnn_attention_backward.default"
    assert told(run, backward) == [
        Told("workspace of cuDNN, estimated", B * H * S * (D + 1) * F32, (f"aten.{backward}",) * 3, outlived=False)
    ]


def test_attention_by_math(train: Callable[..., Any]) -> None:
    x = torch.zeros(B, H, S, D, dtype=torch.bfloat16)
    run = run_toy(train, lambda: Toy(attend), x, capability="7.5")
    assert told(run, "_safe_softmax.default") == [
        Told("softmax", B * H * S * S * F32, (), outlived=False),
        Told("masked", B * H * S * S, (), outlived=False),
        Told("masked_rows", B * H * S, (), outlived=False),
        Told("zero", F32, (), outlived=False),
    ]


def test_the_backward_of_an_embedding(train: Callable[..., Any]) -> None:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5000, 4)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.table(x).tanh().sum()}

    run = train(Embedded, {"x": torch.zeros(4, 1000, dtype=torch.long)})
    backward = "embedding_dense_backward.default"
    output = (f"aten.{backward}",)
    by_name = {piece.name: piece for piece in told(run, backward)}
    assert by_name["sorted_indices"] == Told("sorted_indices", 4000 * I64, (), outlived=False)
    assert by_name["range"] == Told("range", 4000 * I64, (), outlived=False)
    assert by_name["grad_weight_per_segment"] == Told(
        "grad_weight_per_segment", (400 + 4000) * 4 * F32, output, outlived=False
    )
    few = train(Embedded, {"x": torch.zeros(3, 1000, dtype=torch.long)})
    assert told(few, backward) == []


def test_the_gradient_of_a_bias(train: Callable[..., Any]) -> None:
    def linear(toy: Any, x: torch.Tensor) -> torch.Tensor:
        return toy.linear(x).tanh()  # type: ignore[no-any-return]

    run = run_toy(train, lambda: Toy(linear, linear=nn.Linear(8, 64)), torch.zeros(4096, 8), capability="7.5")
    # 64 columns are 16 of four: a block of 16 x 8 threads. 4096 / 8 = 512 values each; a card of compute capability
    # 7.5 has at most 72 x 1024 / 128 = 576 blocks, but each thread keeps 16 values: 512 / 16 = 32 blocks share.
    output = ("aten.sum.dim_IntList",)
    assert told(run, "sum.dim_IntList") == [
        Told("staging buffer", F32 * 64 * 32 * 16 * 4, output, outlived=False),
        Told("semaphores", 4, output, outlived=False),
    ]


def test_indexing(train: Callable[..., Any]) -> None:
    def index(toy: Any, x: torch.Tensor) -> torch.Tensor:
        return (x * toy.weight)[torch.arange(3, device=x.device)].tanh()  # type: ignore[no-any-return]

    run = run_toy(train, lambda: Toy(index), torch.zeros(5, 7))
    operators = ("_index_put_impl_.default", "index_put.default", "index_put_.default")  # releases differ
    pieces = {piece.name: piece.bytes for operator in operators for piece in told(run, operator)}
    assert pieces == {
        "index, wrapped": 3 * I64,
        "linearIndex": 3 * I64,
        "sorted_indices": 3 * I64,
        "orig_indices": 3 * I64,
        "range": 3 * I64,
        "temporary storage of the radix sort": 1,
    }


def test_layer_norms_backward_copies_a_gradient_that_is_not_contiguous(train: Callable[..., Any]) -> None:
    run = train(lambda: Toy(lambda toy, x: toy.norm(x), norm=nn.LayerNorm(8)), {"x": torch.zeros(16, 8)})
    pieces = told(run, "native_layer_norm_backward.default")
    assert pieces == [Told("contiguous grad and input", 16 * 8 * F32, (), outlived=False)]  # of a sum: expanded


def test_clipping_takes_a_place_for_each_chunk_of_each_gradient(train: Callable[..., Any]) -> None:
    def make() -> nn.Module:
        return Toy(lambda toy, x: toy.large(x), large=nn.Linear(300, 500))

    run = run_toy(train, make, torch.zeros(2, 300), max_grad_norm=1.0, optimizer="adamw_torch")
    norm = told(run, "_foreach_norm.Scalar")
    assert [(piece.name, piece.bytes, piece.outlived) for piece in norm] == [
        ("output_per_tensor", 2 * 3 * F32, False)  # weight and bias have gradients; 150,000 elements are 3 chunks
    ]


@pytest.mark.parametrize("operator", ["max.dim", "argmax.default"])
def test_the_largest_is_found_with_its_place(train: Callable[..., Any], operator: str) -> None:
    def find(toy: Any, x: torch.Tensor) -> torch.Tensor:
        found = x.max(0)[0] if operator == "max.dim" else x.argmax(0)
        return toy.weight * found  # type: ignore[no-any-return]

    run = run_toy(train, lambda: Toy(find), torch.zeros(10_000, 512), capability="9.0")
    outputs = (f"aten.{operator}",) * (2 if operator == "max.dim" else 1)
    assert told(run, operator) == [
        Told("staging buffer", 16 * 512 * 157 * 128, outputs, outlived=False),  # a number and an int64, padded
        Told("semaphores", 16, outputs, outlived=False),
    ]


@pytest.mark.parametrize("operator", ["sum.default", "mean.default"])
def test_sums_of_little_take_nothing(train: Callable[..., Any], operator: str) -> None:
    run = train(lambda: Toy(lambda toy, x: x * toy.weight), {"x": torch.zeros(16, 8)})
    assert told(run, operator) == []
