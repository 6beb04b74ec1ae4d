"""The loop that is written for the user, run with real numbers on a toy model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from memdoctor.codec import from_json
from memdoctor.patches import patch_of
from memdoctor.records import Workload

ROWS, FEATURES, LABELS = 8, 3, 2


class Toy(torch.nn.Module):
    """One linear layer with the signature of a classifier of transformers; counts what is changed how often."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(FEATURES, LABELS)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> SimpleNamespace:
        """Logits, and their loss against the labels."""
        logits = self.head(inputs)
        return SimpleNamespace(logits=logits, loss=torch.nn.functional.cross_entropy(logits.float(), labels))


class Recorded(torch.optim.SGD):
    """Keeps the gradients that each step saw."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.seen: list[torch.Tensor] = []

    def step(self, closure: Any = None) -> Any:
        """A step of SGD."""
        self.seen.append(self.param_groups[0]["params"][0].grad.clone())
        return super().step(closure)


def run(change: dict[str, Any], batch: int = 2, **settings: Any) -> tuple[Toy, Recorded, dict[str, Any]]:
    """The torch language's lines, with a loader of ``ROWS`` rows."""
    torch.manual_seed(0)
    model = Toy()
    inputs, labels = torch.randn(ROWS, FEATURES), torch.arange(ROWS) % LABELS
    rows = range(0, ROWS, batch)
    loader = [{"inputs": inputs[row : row + batch], "labels": labels[row : row + batch]} for row in rows]
    optimizer = Recorded(model.parameters(), lr=0.1)
    space = {"model": model, "loader": loader, "optimizer": optimizer}
    text = patch_of(from_json(Workload, {"model": "m", **settings}), change, "5.24.0")["torch"]
    exec(text, space)  # noqa: S102 - our own lines
    return model, optimizer, space


def test_accumulation_steps_every_n_and_sees_the_large_batchs_gradient() -> None:
    _, accumulated, _ = run({"gradient_accumulation_steps": 4}, batch=2)
    _, at_once, _ = run({"max_grad_norm": 0.0}, batch=8)
    _, clipped, _ = run({"gradient_accumulation_steps": 4}, batch=2, max_grad_norm=0.0)
    assert len(accumulated.seen) == len(at_once.seen) == len(clipped.seen) == 1  # 4 micro-batches of 2 rows
    torch.testing.assert_close(clipped.seen[0], at_once.seen[0])


def test_without_accumulation_every_batch_is_a_step() -> None:
    assert len(run({"max_grad_norm": 1.0}, batch=2, max_grad_norm=0.0)[1].seen) == 4


def test_gradients_are_clipped_to_the_norm() -> None:
    model, optimizer, _ = run({"max_grad_norm": 1e-3}, batch=8)
    assert optimizer.seen[0].norm() <= 1e-3 < run({"max_grad_norm": 0.0}, batch=8)[1].seen[0].norm()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_gradients_stay_as_zeros_where_that_is_asked_for() -> None:
    model, _, _ = run({"zero_grad_set_to_none": False}, batch=8)
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_trains(precision: str, steps: int) -> None:
    before = run({"max_grad_norm": 0.0}, batch=8)[0]
    model, optimizer, space = run({"precision": precision, "gradient_accumulation_steps": steps}, batch=2)
    assert ("scaler" in space) == (precision == "fp16")
    assert len(optimizer.seen) == 4 // steps
    assert space["loss"].dtype is torch.float32
    assert not torch.equal(model.head.weight, before.head.weight)
    assert bool(torch.isfinite(model.head.weight).all())


def test_gradients_of_half_precision_are_unscaled_before_they_are_clipped() -> None:
    _, optimizer, space = run({"precision": "fp16"}, batch=8)
    exact = run({"max_grad_norm": 0.0}, batch=8)[1].seen[0]
    assert space["scaler"].get_scale() > 1
    torch.testing.assert_close(optimizer.seen[0], exact, rtol=1e-2, atol=1e-3)  # a half has 11 bits


def test_labels_are_smoothed() -> None:
    smoothed, plain = (
        run({"label_smoothing_factor": factor}, batch=8, label_smoothing_factor=0.5) for factor in (0.1, 0.0)
    )
    assert not torch.allclose(smoothed[1].seen[0], plain[1].seen[0])
    torch.testing.assert_close(plain[1].seen[0], run({"max_grad_norm": 0.0}, batch=8)[1].seen[0])


def test_the_cache_is_emptied_every_n_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[None] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
    run({"torch_empty_cache_steps": 2}, batch=2)
    assert len(emptied) == 2  # of 4 steps


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"optimizer": "lomo"}, {"gradient_accumulation_steps": 2}),  # its step is a part of backward
        ({"task": "causal-lm"}, {"label_smoothing_factor": 0.1}),  # labels are shifted against the logits
    ],
)
def test_a_loop_that_would_be_another_is_not_written(settings: dict[str, Any], change: dict[str, Any]) -> None:
    assert "torch" not in patch_of(from_json(Workload, {"model": "m", **settings}), change, "5.24.0")
