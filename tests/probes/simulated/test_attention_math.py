"""Attention written out: the same operators as PyTorch's composite, but for the mask, which is added in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

B, H, S, D = 2, 3, 8, 6
F32 = 4
SCORES = B * H * S * S


class Attending(nn.Module):
    """Self-attention by the operator given; the loss is its sum."""

    def __init__(self, attend: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1))
        self.attend = attend

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        heads = x * self.weight.to(x.dtype)
        return {"loss": self.attend(heads, mask).float().sum()}


def ours(heads: torch.Tensor, mask: torch.Tensor | None, **settings: Any) -> torch.Tensor:
    return functional.scaled_dot_product_attention(heads, heads, heads, mask, **settings)


def pytorchs(heads: torch.Tensor, mask: torch.Tensor | None, dropout_p: float = 0.0, **settings: Any) -> torch.Tensor:
    composite = torch.ops.aten._scaled_dot_product_attention_math.default
    out: torch.Tensor = composite(heads, heads, heads, mask, dropout_p, **settings)[0]
    return out


def births(run: Any) -> list[tuple[str, int, int]]:
    """The operator and the bytes of each birth, and what is then in use: deaths between births have no order."""
    in_use = run.timeline.in_use()
    return [
        (run.timeline.blocks[event.block].op, event.delta_bytes, in_use[instant])
        for instant, event in enumerate(run.timeline.events)
        if event.delta_bytes > 0
    ]


@pytest.fixture(scope="module")
def attended(train: Callable[..., Any]) -> Callable[..., Any]:
    """``attended(attend, dtype, mask, **settings)``: a step on a card that has no other kernel for bf16."""

    def run(attend: Callable[..., torch.Tensor], dtype: torch.dtype, mask: Any = None, **settings: Any) -> Any:
        batch = {"x": torch.zeros(B, H, S, D, dtype=dtype)}
        if mask is not None:
            batch["mask"] = mask
        return train(lambda: Attending(lambda heads, m: attend(heads, m, **settings)), batch, capability="7.5")

    return run


@pytest.mark.parametrize(
    "settings",
    [{}, {"dropout_p": 0.1}, {"scale": 0.3}, {"scale": -0.3}, {"is_causal": False}],
    ids=["plain", "dropout", "scale", "negative scale", "not causal"],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_without_a_mask_every_birth_is_that_of_the_composite(
    attended: Callable[..., Any], dtype: torch.dtype, settings: dict[str, Any]
) -> None:
    assert births(attended(ours, dtype, **settings)) == births(attended(pytorchs, dtype, **settings))


@pytest.mark.parametrize("settings", [{"is_causal": True}, {"mask": "float"}, {"mask": "float", "dropout_p": 0.1}])
def test_a_mask_takes_no_second_set_of_scores(attended: Callable[..., Any], settings: dict[str, Any]) -> None:
    mask = torch.zeros(B, 1, S, S, dtype=torch.bfloat16) if "mask" in settings else None
    others = {name: value for name, value in settings.items() if name != "mask"}
    in_place = births(attended(ours, torch.bfloat16, mask, **others))
    out_of_place = births(attended(pytorchs, torch.bfloat16, mask, **others))
    (place,) = (n for n, birth in enumerate(out_of_place) if birth[:2] == ("aten.add.Tensor", SCORES * F32))
    # Without that one, the same: the product's scores, which die when they were added, hold the sum instead.
    assert in_place == out_of_place[:place] + out_of_place[place + 1 :]


def test_bf16_is_computed_in_fp32_and_returned_in_bf16(attended: Callable[..., Any]) -> None:
    run = attended(ours, torch.bfloat16, torch.zeros(B, 1, S, S, dtype=torch.bfloat16), dropout_p=0.1)
    # Softmax's output, dropout's mask and dropout's output, and the scaled query and key and the value, all of fp32.
    # Nobody keeps what they were cast from; the input of the model needs no gradient, and so the weight is not kept.
    assert run.held(run.end("forward"))["activations"] == SCORES * (F32 + 1 + F32) + 3 * B * H * S * D * F32
    # The operator returns the weights as well: a copy in bf16.
    weights = [block.dtype for block in run.born("forward") if block.shape == (B, H, S, S) and block.dtype != "float32"]
    assert weights == ["bool", "bfloat16"]
