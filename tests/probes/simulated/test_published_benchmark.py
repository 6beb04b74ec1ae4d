"""The benchmark of attention in BERT that transformers publishes, run on the simulated GPU.

``docs/source/en/model_doc/bert.md`` of transformers 4.40 (from pull request 28802; the script is
gist.github.com/fxmarty/7e75cc3942d6974e4849093ebea0a331): ``BertLMHeadModel`` of bert-base-uncased with fp16 weights,
A100 80 GB, torch 2.2.0, no optimizer, the loss the sum of the logits, outputs kept; the peak of
``max_memory_allocated`` after a warm-up, in units of 10^6 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers import initialization
from transformers.models.bert import BertConfig, BertLMHeadModel

from memdoctor.probes.simulated.allocator.replay import replay
from memdoctor.records import Event, Loop, Timeline

CUBLAS = 8_519_680


class CublasLinear(torch.autograd.Function):
    """A linear layer whose gradient is a number expanded to a matrix, which is what the gradient of a sum is.

    cuBLAS cannot read that, so each product copies it (``prepare_matrix_for_cublas``, ATen/native/cuda/Blas.cpp).
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, weight = ctx.saved_tensors
        grad = grads[0].reshape(-1, weight.shape[0])
        of_x = torch.mm(grad.contiguous(), weight)
        of_weight = torch.mm(grad.contiguous().t(), x.reshape(-1, weight.shape[1]))
        return of_x.view_as(x), of_weight, grad.sum(0)


class Decoder(nn.Module):
    """The product with all words' embeddings."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = CublasLinear.apply(x, self.weight, self.bias)
        assert isinstance(logits, torch.Tensor)
        return logits


class Benchmark(nn.Module):
    """The script's model and loss."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        with initialization.no_init_weights():
            config = BertConfig(use_cache=False)
            self.model = BertLMHeadModel._from_config(config, attn_implementation=attention, dtype=torch.float16)
        self.model.tie_weights()
        head = self.model.cls.predictions
        head.decoder = Decoder(head.decoder)

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.model(input_ids=input_ids).logits
        return {"loss": logits.sum(), "logits": logits}


@pytest.fixture(scope="module")
def benchmark(train: Callable[..., Any]) -> Callable[..., Timeline]:
    """``benchmark(attention, batch, length)``: three steps, the third of which is like all that follow."""
    done: dict[tuple[str, int, int], Timeline] = {}

    def run(attention: str, batch: int, length: int) -> Timeline:
        key = (attention, batch, length)
        if key not in done:
            ids = {"input_ids": torch.full((batch, length), 5)}
            steps = train(lambda: Benchmark(attention), ids, capability="8.0", steps=3, loop=Loop.CUSTOM)
            done[key] = steps.timeline
        return done[key]

    return run


def in_third_step(timeline: Timeline) -> int:
    """The event with which it begins."""
    return next(phase.begin for phase in timeline.phases if phase.step == 3)


def workspaces(timeline: Timeline) -> set[int]:
    """cuBLAS's: they outlive a model."""
    return {number for number, block in enumerate(timeline.blocks) if block.bytes == CUBLAS}


def peak_after_another(first: Timeline, second: Timeline) -> int:
    """The most allocated in the third step of ``second``, in a process where ``first`` ran and was deleted."""
    left = [n for n in first.alive_after(len(first.events) - 1) if n not in workspaces(first)]
    before = [*first.events, *(Event(n, -first.blocks[n].bytes) for n in left)]
    again = workspaces(second)
    events = [Event(e.block + len(first.blocks), e.delta_bytes) for e in second.events if e.block not in again]
    third = sum(event.block not in again for event in second.events[: in_third_step(second)])
    return max(replay([*before, *events]).allocated[len(before) + third :])


@pytest.mark.parametrize(
    ("batch", "length", "reading"), [(16, 256, 2_874_426_000), (8, 512, 3_629_401_000), (16, 512, 6_964_659_000)]
)
def test_eager_attention(benchmark: Callable[..., Timeline], batch: int, length: int, reading: int) -> None:
    """The script runs it after the fused one, whose cached blocks take up its weights: 0.5 MB above, under 0.02 %.

    In a process of its own the weights lie in new segments, with other tails unsplit, and 3.7 MB are missing.
    """
    eager = benchmark("eager", batch, length)
    predicted = peak_after_another(benchmark("sdpa", 16, 512), eager)
    assert 0 < predicted - reading < 600_000
    alone = max(eager.memory_allocated()[in_third_step(eager) :])
    assert 3_600_000 < reading - alone < 3_700_000


@pytest.mark.parametrize(("batch", "length", "reading"), [(8, 512, 2_134_262_000), (16, 512, 3_961_013_000)])
def test_fused_attention(benchmark: Callable[..., Timeline], batch: int, length: int, reading: int) -> None:
    """16 MB are missing, 15 for twice the batch: under 0.8 %, and no activation. Why is not established."""
    fused = benchmark("sdpa", batch, length)
    alone = max(fused.memory_allocated()[in_third_step(fused) :])
    assert 15_000_000 < reading - alone < 16_200_000
