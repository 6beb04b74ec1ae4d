"""Loops by hand, evaluation and the allocator's cache: what they keep alive, in bytes worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from memdoctor.records import Loop, Precision

ROWS, IN, OUT = 4, 6, 3
F16, F32 = 2, 4
PARAMETERS = IN * OUT + OUT
LOGITS = ROWS * OUT * F32
HIDDEN = ROWS * IN * F32
SCALAR = F32


class Head(nn.Module):
    """Returns its loss, its logits, and a state that nothing needs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(IN, OUT)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.linear(x)
        return {"loss": logits.sum(), "logits": logits, "state": x + 1}


def rows() -> dict[str, torch.Tensor]:
    return {"x": torch.zeros(ROWS, IN)}


def outputs(run: Any, instant: int) -> list[tuple[int, ...]]:
    """The shapes of what the model returned beside the loss, alive at an instant."""
    alive = [block for block in run.alive(instant) if block.op in ("aten.addmm.default", "aten.add.Tensor")]
    return sorted(block.shape for block in alive)


def test_the_trainer_drops_the_outputs_before_backward(train: Callable[..., Any]) -> None:
    run = train(Head, rows(), steps=2)
    assert outputs(run, run.end("forward")) == []
    assert outputs(run, run.peak("forward", step=2)) == [(ROWS, OUT), (ROWS, IN)]


def test_a_loop_by_hand_keeps_the_outputs_until_the_next_are_there(train: Callable[..., Any]) -> None:
    run = train(Head, rows(), steps=2, loop=Loop.CUSTOM)
    kept = [(ROWS, OUT), (ROWS, IN)]
    for phase in ("forward", "backward", "optimizer", "zero_grad"):
        assert outputs(run, run.end(phase)) == kept
    assert outputs(run, run.peak("forward", step=2)) == sorted(2 * kept)
    assert outputs(run, run.end("forward", step=2)) == kept


def test_a_loop_by_hand_leaves_outputs_in_16_bits(train: Callable[..., Any]) -> None:
    types = {}
    for loop in Loop:
        run = train(Head, rows(), loop=loop, precision=Precision.BF16, capability="8.0")
        alive = run.alive(run.peak("forward"))
        types[loop] = sorted(block.dtype for block in alive if block.shape == (ROWS, OUT))
    assert types == {Loop.TRAINER: ["bfloat16", "float32"], Loop.CUSTOM: ["bfloat16"]}


def test_a_loop_by_hand_has_one_parameter_group(train: Callable[..., Any]) -> None:
    """AdamW's foreach then makes the roots of all second moments at once, not those of the decayed group."""

    def temporaries(loop: Loop) -> int:
        run = train(Head, rows(), steps=2, optimizer="adamw_torch", loop=loop)
        peak, begin = run.peak("optimizer", step=2), run.phase("optimizer", step=2).begin - 1
        nbytes: int = run.timeline.in_use()[peak] - run.timeline.in_use()[begin]
        return nbytes

    assert temporaries(Loop.CUSTOM) == PARAMETERS * F32
    assert temporaries(Loop.TRAINER) == IN * OUT * F32


def test_gradients_set_to_zero_stay(train: Callable[..., Any]) -> None:
    run = train(Head, rows(), steps=2, zero_grad_set_to_none=False)
    held = [run.held(run.end("zero_grad", step=step))["gradients"] for step in (1, 2)]
    assert held == [PARAMETERS * F32] * 2
    # The second backward adds to them, and its own are temporaries.
    assert not any(block.category.value == "gradients" for block in run.born("backward", step=2))


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_each_forward_pass_keeps_its_own_activations_until_the_one_backward(
    train: Callable[..., Any], passes: int
) -> None:
    def squared() -> nn.Module:
        class Squared(Head):
            def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
                return {"loss": self.linear(x).square().sum()}

        return Squared()

    run = train(squared, rows(), forward_passes=passes)
    assert run.held(run.end("forward"))["activations"] == passes * LOGITS  # what is squared
    assert len([phase for phase in run.timeline.phases if phase.name.value == "backward"]) == 1


@pytest.mark.parametrize(("every", "cleared"), [(1, [1, 2, 3]), (2, [1, 3]), (5, [1])])
def test_the_cache_is_emptied_between_forward_and_backward(
    train: Callable[..., Any], every: int, cleared: list[int]
) -> None:
    run = train(Head, rows(), steps=3, torch_empty_cache_steps=every)
    assert list(run.timeline.cache_clears) == [run.phase("forward", step=step).end for step in cleared]


def test_emptying_the_cache_gives_reserved_memory_back(train: Callable[..., Any]) -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            (x.repeat(1, 4 << 20) + 1).sum()  # 16 MiB a row that nothing needs: 96 MiB, twice
            return (x * self.weight).sum()

    batch = {"x": torch.zeros(6, 1)}
    kept = train(Wide, batch).timeline
    given_back = train(Wide, batch, torch_empty_cache_steps=1).timeline
    assert max(kept.reserved()) == max(given_back.reserved())
    assert kept.reserved()[-1] - given_back.reserved()[-1] == 2 * (96 << 20)


# Evaluation

BATCHES = 3


def evaluated(train: Callable[..., Any], **settings: Any) -> Any:
    return train(
        Head, rows(), evaluate=True, eval_batch_size=ROWS, eval_samples=BATCHES * ROWS, optimizer="sgd", **settings
    )


def predictions(run: Any, instant: int) -> dict[tuple[int, ...], int]:
    """Gathered logits and states alive at an instant: their shape, and how many."""
    alive = [block.shape for block in run.alive(instant) if block.op == "aten.cat.default" and len(block.shape) == 2]
    return {shape: alive.count(shape) for shape in alive}


def test_evaluation_follows_the_last_step_and_keeps_no_gradients(train: Callable[..., Any]) -> None:
    run = evaluated(train)
    assert run.timeline.phases[-1].name.value == "evaluation"
    assert run.held(run.peak("evaluation"))["gradients"] == 0
    assert run.held(run.peak("evaluation"))["activations"] == 0


def test_all_predictions_stay_on_the_gpu_with_the_old_beside_the_new(train: Callable[..., Any]) -> None:
    run = evaluated(train)
    # The last batch's states are put to all before: those so far, and both together.
    assert predictions(run, run.peak("evaluation"))[BATCHES * ROWS, IN] == 1
    assert predictions(run, run.peak("evaluation"))[(BATCHES - 1) * ROWS, IN] == 1
    born = [block.shape for block in run.born("evaluation") if block.op == "aten.cat.default" and len(block.shape) == 2]
    assert born == [(2 * ROWS, OUT), (2 * ROWS, IN), (3 * ROWS, OUT), (3 * ROWS, IN)]


def test_eval_accumulation_steps_moves_them_to_the_host(train: Callable[..., Any]) -> None:
    run = evaluated(train, eval_accumulation_steps=1)
    assert not any(block.op == "aten.cat.default" for block in run.born("evaluation"))
    assert len(run.timeline.cache_clears) == BATCHES


def test_the_loss_alone_keeps_no_predictions(train: Callable[..., Any]) -> None:
    run = evaluated(train, prediction_loss_only=True)
    born = [block.bytes for block in run.born("evaluation") if block.op == "aten.cat.default"]
    assert born == [2 * ROWS * F32, 3 * ROWS * F32]  # the losses, one a sample


@dataclass
class Told:
    loss: torch.Tensor
    logits: torch.Tensor
    state: torch.Tensor


def test_outputs_may_be_fields_as_well_as_items(train: Callable[..., Any]) -> None:
    class Fields(Head):
        def forward(self, x: torch.Tensor) -> Told:  # type: ignore[override]
            return Told(**super().forward(x))

    settings = {"evaluate": True, "eval_batch_size": ROWS, "eval_samples": BATCHES * ROWS}
    items, fields = train(Head, rows(), **settings), train(Fields, rows(), **settings)
    assert items.timeline.in_use() == fields.timeline.in_use()


def test_evaluation_calls_the_model_once_for_a_batch(train: Callable[..., Any]) -> None:
    once, twice = evaluated(train), evaluated(train, forward_passes=2)
    assert [block.shape for block in once.born("evaluation")] == [block.shape for block in twice.born("evaluation")]


def test_the_last_batch_of_evaluation_is_what_is_left(small_bert: Any, probed: Any) -> None:
    run = probed(small_bert(), steps=1, evaluate=True, eval_batch_size=4, eval_samples=10)
    rows_seen = {block.shape[0] for block in run.born("evaluation") if block.shape[1:] == (32,)}
    assert rows_seen == {2, 4}
