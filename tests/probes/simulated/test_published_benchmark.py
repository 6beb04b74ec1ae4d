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

from memdoctor.records import Loop

MB = 1_000_000


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
def steady_peak(train: Callable[..., Any]) -> Callable[..., float]:
    """``steady_peak(attention, batch, length)``: the most allocated in the third step, in 10^6 bytes."""

    def measure(attention: str, batch: int, length: int) -> float:
        ids = {"input_ids": torch.full((batch, length), 5)}
        run = train(lambda: Benchmark(attention), ids, capability="8.0", steps=3, loop=Loop.CUSTOM)
        third = run.phase("forward", step=3).begin
        return max(run.timeline.memory_allocated()[third:]) / MB

    return measure


@pytest.mark.parametrize(("batch", "length", "reading"), [(8, 512, 3629.401), (16, 512, 6964.659)])
def test_eager_attention(steady_peak: Callable[..., float], batch: int, length: int, reading: float) -> None:
    """The same 3.67 MB (0.1 %) are missing, whatever the shape: no activation does that.

    Not established: the allocator's history is another there, for other shapes and another model ran before.
    """
    assert round(reading - steady_peak("eager", batch, length), 2) in (3.66, 3.67)


@pytest.mark.parametrize(("batch", "length", "reading"), [(8, 512, 2134.262), (16, 512, 3961.013)])
def test_fused_attention(steady_peak: Callable[..., float], batch: int, length: int, reading: float) -> None:
    """16 MB are missing, 15 for twice the batch: under 0.8 %, and again no activation; not established either."""
    assert 15 < reading - steady_peak("sdpa", batch, length) < 16.2
