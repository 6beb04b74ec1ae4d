"""Readings of 2019 on a K80, imitated: BERT as it was written then, and what autograd kept then.

The log of 2019-09-18 gives ``memory_allocated`` around one forward pass, in whole MiB. It names no versions; the code
of its time explains all eight readings of two models to the MiB:

- Layer norm and GELU were composed of primitive operators, each of which keeps its operands.
- Softmax kept its input beside its output (``derivatives.yaml`` before torch 1.12 saved ``self``).
- Dropout was off, as in what ``from_pretrained`` returns. With it, the second reading would be 1515 MiB higher: a byte
  for each element of ``1 + 2 * layers`` states, and five for each score.
- cuBLAS took its workspace from the driver, not from PyTorch's allocator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memdoctor.records import Loop

F32, I64 = 4, 8
MIB = 1 << 20


class ComposedNorm(nn.Module):
    """``BertLayerNorm`` of pytorch-transformers 1.x. Keeps both differences and their quotient."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + 1e-12)
        return self.weight * x + self.bias


def composed_gelu(x: torch.Tensor) -> torch.Tensor:
    """Keeps ``x / sqrt(2)``, ``x / 2`` and ``1 + erf``."""
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class OldSoftmax(torch.autograd.Function):
    """Softmax over the last dimension that keeps its input as well."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(scores, -1)
        ctx.save_for_backward(scores, weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        scores, weights = ctx.saved_tensors
        return torch._softmax_backward_data(grads[0], weights, -1, scores.dtype)


class OldLayer(nn.Module):
    """``BertLayer``, without dropout."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.intermediate, self.output = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first_norm, self.second_norm = ComposedNorm(width), ComposedNorm(width)

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.first_norm(self.dense(self.attend(hidden, mask)) + hidden)
        return self.second_norm(self.output(composed_gelu(self.intermediate(hidden))) + hidden)

    def attend(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = hidden.shape

        def split(x: torch.Tensor) -> torch.Tensor:
            return x.view(batch, length, self.heads, width // self.heads).permute(0, 2, 1, 3)

        query, key, value = split(self.query(hidden)), split(self.key(hidden)), split(self.value(hidden))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(width // self.heads) + mask
        context = torch.matmul(OldSoftmax.apply(scores), value)
        return context.permute(0, 2, 1, 3).contiguous().view(batch, length, width)


class OldBert(nn.Module):
    """``BertForSequenceClassification`` of 2019, in evaluation mode."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.types, self.norm = nn.Embedding(2, width), ComposedNorm(width)
        self.layers = nn.ModuleList(OldLayer(width, heads) for _ in range(layers))
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        positions = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0).expand_as(ids)
        added = (1.0 - mask[:, None, None, :].to(torch.float32)) * -10000.0
        hidden = self.norm(self.words(ids) + self.positions(positions) + self.types(torch.zeros_like(ids)))
        for layer in self.layers:
            hidden = layer(hidden, added)
        logits = self.classifier(torch.tanh(self.pooler(hidden[:, 0])))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


BASE, LARGE = (768, 12, 12), (1024, 16, 24)  # width, heads, layers
READINGS = [  # shape, length, batch, MiB before forward and after
    pytest.param(BASE, 512, 1, 418, 1238, id="base-512-1"),
    pytest.param(BASE, 512, 8, 418, 6803, id="base-512-8"),
    pytest.param(BASE, 128, 32, 418, 5075, id="base-128-32"),
    pytest.param(LARGE, 512, 4, 1279, 9759, id="large-512-4"),
]


@pytest.fixture(scope="module")
def forward(train: Callable[..., Any]) -> Callable[..., Any]:
    """``forward(shape, length, batch)``: one step of the old BERT on a K80; asked for its forward only."""
    done: dict[Any, Any] = {}

    def run(shape: tuple[int, int, int], length: int, batch: int) -> Any:
        key = (shape, length, batch)
        if key not in done:
            ids = torch.zeros(batch, length, dtype=torch.long)
            inputs = {"ids": ids, "mask": ids, "labels": torch.zeros(batch, dtype=torch.long)}
            done[key] = train(lambda: OldBert(*shape), inputs, capability="3.7", loop=Loop.CUSTOM)
        return done[key]

    return run


def saved_bytes(shape: tuple[int, int, int], length: int, batch: int) -> int:
    """What autograd keeps of the forward, by hand: no figure of the readings is in it."""
    width, heads, layers = shape
    tokens = batch * length
    state, column = tokens * width * F32, tokens * F32
    scores = batch * heads * length * length * F32
    norm = 3 * state + column  # two differences, the quotient; the square root
    attention = state + 3 * state + 2 * scores + state  # input; query, key, value; softmax in and out; context
    feed_forward = state + (3 + 1) * 4 * state  # input; GELU's three, and its output
    head = batch * width * F32 + batch * 2 * F32 + F32  # tanh, log-softmax, the number of labels
    indices = length * I64 + tokens * I64  # positions and token types
    return indices + norm + layers * (attention + norm + feed_forward + norm) + state + head


@pytest.mark.parametrize(("shape", "length", "batch", "before", "after"), READINGS)
def test_the_readings_are_met_to_the_mib(
    forward: Callable[..., Any], shape: Any, length: int, batch: int, before: int, after: int
) -> None:
    run = forward(shape, length, batch)
    end = run.end("forward")
    assert run.held(end)["activations"] == saved_bytes(shape, length, batch)
    allocated = run.timeline.memory_allocated()  # with rounding and tails: 22 MiB of them at batch 1
    workspace = sum(block.allocated_bytes for block in run.alive(end) if block.category.value == "workspace")
    assert allocated[run.end("setup", step=0)] // MIB == before
    assert (allocated[end] - workspace) // MIB == after
