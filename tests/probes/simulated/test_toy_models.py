"""Toy models whose bytes are worked out by hand: what each operator saves, and what a training step holds when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from memdoctor.records import Loop, Precision

ROWS, IN, HIDDEN, OUT = 4, 6, 8, 3
F16, F32, I64, BOOL = 2, 4, 8, 1  # bytes of an element

WEIGHTS = HIDDEN * IN + OUT * HIDDEN  # of the two layers below
BIASES = HIDDEN + OUT
PARAMETERS = WEIGHTS + BIASES
TENSORS = 4
INPUT = ROWS * IN * F32
RELU = ROWS * HIDDEN * F32
SCALAR = F32
CUBLAS = 2 * 4096 * 1024 + 8 * 16 * 1024  # PyTorch's default workspace, one a thread: 8,519,680


class Summed(nn.Module):
    """The sum of what ``body`` returns is the loss; a sum saves nothing for backward."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.body(x).sum()}


def two_layers() -> nn.Module:
    return Summed(nn.Sequential(nn.Linear(IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT)))


def rows(width: int = IN) -> dict[str, torch.Tensor]:
    return {"x": torch.zeros(ROWS, width)}


# What autograd keeps of each operator. The input of the model needs no gradient, and is an input, not an activation.


@pytest.mark.parametrize(
    ("body", "saved"),
    [
        pytest.param(lambda: nn.Linear(IN, OUT), 0, id="linear: its input, which is the model's"),
        pytest.param(
            lambda: nn.Sequential(nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, OUT)),
            ROWS * HIDDEN * F32,
            id="linear, linear: what is between them",
        ),
        pytest.param(
            lambda: nn.Sequential(nn.Linear(IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT)),
            ROWS * HIDDEN * F32,
            id="relu: its output, which the next layer keeps as well",
        ),
        pytest.param(
            lambda: nn.Sequential(nn.Linear(IN, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, OUT)),
            2 * ROWS * HIDDEN * F32,
            id="gelu: its input; the next layer keeps its output",
        ),
        pytest.param(
            lambda: nn.Sequential(nn.Linear(IN, HIDDEN), nn.Tanh()), ROWS * HIDDEN * F32, id="tanh: its output"
        ),
        pytest.param(
            lambda: nn.Sequential(nn.Linear(IN, HIDDEN), nn.Softmax(-1)), ROWS * HIDDEN * F32, id="softmax: its output"
        ),
        pytest.param(
            lambda: nn.LayerNorm(IN), 2 * ROWS * F32, id="layer norm: its input, and mean and 1/deviation of each row"
        ),
        pytest.param(
            lambda: nn.Sequential(nn.Linear(IN, HIDDEN), nn.Dropout(0.1)),
            ROWS * HIDDEN * BOOL,
            id="dropout: a mask of one byte an element",
        ),
        pytest.param(
            lambda: nn.Sequential(nn.Linear(IN, HIDDEN), nn.Dropout(0.0), nn.Tanh()),
            ROWS * HIDDEN * F32,
            id="dropout of nothing: nothing; tanh keeps its output",
        ),
    ],
)
def test_forward_keeps_what_backward_needs(
    train: Callable[..., Any], body: Callable[[], nn.Module], saved: int
) -> None:
    run = train(lambda: Summed(body()), rows())
    held = run.held(run.end("forward"))
    assert held["activations"] == saved
    assert held["inputs_and_buffers"] == INPUT


def test_an_embedding_keeps_only_its_ids_and_has_a_dense_gradient(train: Callable[..., Any]) -> None:
    vocabulary, length = 50, 5
    ids = {"x": torch.zeros(ROWS, length, dtype=torch.long)}
    run = train(lambda: Summed(nn.Embedding(vocabulary, HIDDEN)), ids)
    forward, backward = run.held(run.end("forward")), run.held(run.end("backward"))
    assert forward["activations"] == 0
    assert forward["inputs_and_buffers"] == ROWS * length * I64
    assert backward["gradients"] == vocabulary * HIDDEN * F32  # all rows, not only those that were looked up


def test_cross_entropy_keeps_log_probabilities_and_the_sum_of_weights(train: Callable[..., Any]) -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(IN, OUT)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": functional.cross_entropy(self.head(x), labels)}

    run = train(Classifier, {**rows(), "labels": torch.zeros(ROWS, dtype=torch.long)})
    held = run.held(run.end("forward"))
    assert held["activations"] == ROWS * OUT * F32 + SCALAR  # log_softmax's output; nll_loss's total weight
    assert held["inputs_and_buffers"] == INPUT + ROWS * I64


def test_a_buffer_is_no_parameter_and_has_no_gradient(train: Callable[..., Any]) -> None:
    run = train(lambda: Summed(nn.BatchNorm1d(IN)), rows())
    held = run.held(run.end("backward"))
    assert held["inputs_and_buffers"] == INPUT + 2 * IN * F32 + I64  # running mean and variance, batches seen
    assert held["parameters"] == held["gradients"] == 2 * IN * F32


# Attention


SEQUENCE, HEADS, SIZE = 5, 2, 4  # SIZE: of a head
WIDTH = HEADS * SIZE
PROJECTED = ROWS * SEQUENCE * WIDTH
SCORES = ROWS * HEADS * SEQUENCE * SEQUENCE


class SelfAttention(nn.Module):
    """Written out, as the eager attention of transformers, or by the fused operator. ``[rows, length, width]``."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fused = fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            project(x).view(*x.shape[:2], HEADS, SIZE).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        if self.fused:
            return functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1)
        scores = query @ key.transpose(2, 3) * SIZE**-0.5
        return functional.dropout(scores.softmax(-1), 0.1) @ value


def sequences() -> dict[str, torch.Tensor]:
    return {"x": torch.zeros(ROWS, SEQUENCE, WIDTH)}


def test_attention_written_out_keeps_9_bytes_a_score(train: Callable[..., Any]) -> None:
    run = train(lambda: Summed(SelfAttention(fused=False)), sequences())
    # Each product keeps contiguous copies of what it multiplied: query, transposed key and value. Of the scores:
    # softmax keeps its output, dropout its mask, and the last product dropout's output.
    assert run.held(run.end("forward"))["activations"] == 3 * PROJECTED * F32 + SCORES * (F32 + BOOL + F32)


def test_memory_efficient_attention_keeps_no_scores(train: Callable[..., Any]) -> None:
    run = train(lambda: Summed(SelfAttention(fused=True)), sequences(), capability="7.5")
    # Query, key, value and its output; the log-sum-exp of each row of scores, the length rounded up to 32.
    assert run.held(run.end("forward"))["activations"] == 4 * PROJECTED * F32 + ROWS * HEADS * 32 * F32


def test_flash_attention_pads_heads_to_8_and_keeps_no_scores(train: Callable[..., Any]) -> None:
    settings = {"capability": "8.0", "precision": Precision.BF16}
    run = train(lambda: Summed(SelfAttention(fused=True)), sequences(), **settings)
    # bf16 copies of the input: one for each projection. Query, key, value and output with heads of 8, not 4, elements;
    # the log-sum-exp in fp32, not rounded up; the state of the random numbers: a pair and a scalar of 8 bytes each.
    padded = PROJECTED // SIZE * 8
    expected = 3 * PROJECTED * F16 + 4 * padded * F16 + ROWS * HEADS * SEQUENCE * F32 + 2 * I64 + I64
    assert run.held(run.end("forward"))["activations"] == expected


# Parameters, gradients, optimizer state


def test_parameters_are_there_from_setup_to_the_end(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), steps=2)
    assert run.held(run.end("setup", step=0)) == {"parameters": PARAMETERS * F32}
    assert {run.held(phase.end - 1)["parameters"] for phase in run.timeline.phases} == {PARAMETERS * F32}


def test_gradients_are_born_in_backward_and_die_in_zero_grad(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), max_grad_norm=1.0)
    held = {name: run.held(run.end(name))["gradients"] for name in ("forward", "backward", "optimizer", "zero_grad")}
    assert held == {"forward": 0, "backward": PARAMETERS * F32, "optimizer": PARAMETERS * F32, "zero_grad": 0}


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [
        ("sgd", 0),  # without momentum, as in the Trainer
        ("adamw_torch", 2 * PARAMETERS * F32),  # two moments; the step count stays on the host
        ("adamw_torch_fused", 2 * PARAMETERS * F32 + TENSORS * F32),  # and a step count on the GPU for each tensor
        ("adagrad", PARAMETERS * F32),
        ("rmsprop", PARAMETERS * F32),
        # Adafactor: a mean for each row and column of a matrix, all of a vector, and the scale of each tensor.
        ("adafactor", (HIDDEN + IN + OUT + HIDDEN + BIASES + TENSORS) * F32),
    ],
)
def test_state_of_each_optimizer(train: Callable[..., Any], optimizer: str, state: int) -> None:
    run = train(two_layers, rows(), steps=2, optimizer=optimizer)
    assert run.held(run.end("optimizer", step=1))["optimizer_state"] == state
    assert run.held(run.end("optimizer", step=2))["optimizer_state"] == state


def test_the_first_forward_has_no_state_and_the_second_has_all_of_it(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), steps=2, optimizer="adamw_torch")
    assert run.held(run.end("forward", step=1))["optimizer_state"] == 0
    assert run.held(run.end("forward", step=2))["optimizer_state"] == 2 * PARAMETERS * F32


def test_foreach_takes_a_list_of_temporaries_for_one_group_at_a_time(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), steps=2, optimizer="adamw_torch")
    # The root of the second moment, first of all weights (they decay), then of all biases (they do not).
    assert [block.shape for block in run.born("optimizer", step=2)] == [(HIDDEN, IN), (OUT, HIDDEN), (HIDDEN,), (OUT,)]
    before, peak = run.end("backward", step=2), run.peak("optimizer", step=2)
    assert run.timeline.in_use()[peak] - run.timeline.in_use()[before] == WEIGHTS * F32


def test_fused_takes_no_temporaries(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), steps=2, optimizer="adamw_torch_fused")
    assert run.born("optimizer", step=2) == []
    assert {block.category.value for block in run.born("optimizer", step=1)} == {"optimizer_state"}


def test_tied_weights_are_one_parameter_with_one_gradient(train: Callable[..., Any]) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(IN, IN, bias=False), nn.Linear(IN, IN, bias=False)
            self.other.weight = self.one.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.other(self.one(x))

    run = train(lambda: Summed(Tied()), rows(), steps=2, optimizer="adamw_torch")
    held = run.held(run.end("optimizer", step=2))
    assert held["parameters"] == held["gradients"] == IN * IN * F32
    assert held["optimizer_state"] == 2 * IN * IN * F32


def test_frozen_parameters_have_neither_gradient_nor_state(train: Callable[..., Any]) -> None:
    def first_frozen() -> nn.Module:
        model = two_layers()
        model.body[0].requires_grad_(False)
        return model

    run = train(first_frozen, rows(), steps=2, optimizer="adamw_torch")
    held = run.held(run.end("optimizer", step=2))
    trained = OUT * HIDDEN + OUT
    assert held["parameters"] == PARAMETERS * F32
    assert held["gradients"] == trained * F32
    assert held["optimizer_state"] == 2 * trained * F32
    # Nothing below the frozen layer needs a gradient, so ReLU keeps nothing; the layer above keeps its input.
    assert run.held(run.end("forward", step=2))["activations"] == RELU


# Clipping


@pytest.mark.parametrize(("loop", "clips"), [(Loop.TRAINER, True), (Loop.CUSTOM, False)])
def test_with_a_clipping_norm_of_0_the_trainer_still_takes_the_norm_for_its_log(
    train: Callable[..., Any], loop: Loop, clips: bool
) -> None:
    run = train(two_layers, rows(), max_grad_norm=0.0, loop=loop)
    names = [phase.name.value for phase in run.timeline.phases]
    assert names == ["setup", "forward", "backward", *(["clip"] if clips else []), "optimizer", "zero_grad"]


def test_clipping_takes_a_norm_for_each_tensor_and_scales_in_place(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), max_grad_norm=1.0)
    before, peak = run.end("backward"), run.peak("clip")
    # The norms, the same stacked, and the norm of all of them; then only scalars, no copy of a gradient.
    assert run.timeline.in_use()[peak] - run.timeline.in_use()[before] == (2 * TENSORS + 1) * F32
    # The norm itself stays, for the log.
    assert run.timeline.in_use()[run.end("clip")] == run.timeline.in_use()[before] + SCALAR


# Gradient accumulation

ACCUMULATED = 4


def test_accumulation_adds_persistent_gradients_and_waiting_inputs_to_a_micro_batch(train: Callable[..., Any]) -> None:
    once = train(two_layers, rows())
    run = train(two_layers, rows(), gradient_accumulation_steps=ACCUMULATED)
    waiting = (ACCUMULATED - 1) * INPUT  # the Trainer fetches all micro-batches of a step first
    in_use, in_use_once = run.timeline.in_use(), once.timeline.in_use()
    first = in_use[run.peak("forward", nth=0)]
    assert first == in_use_once[once.peak("forward")] + waiting
    # From the second micro-batch on: the gradients of the first, backward's workspace, the loss of the one before.
    for nth in range(1, ACCUMULATED):
        assert in_use[run.peak("forward", nth=nth)] == first + PARAMETERS * F32 + CUBLAS + SCALAR
        assert run.held(run.end("backward", nth=nth)) == run.held(run.end("backward"))


def test_accumulated_gradients_need_each_new_gradient_only_until_it_is_added(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), gradient_accumulation_steps=ACCUMULATED)
    gradients = {(HIDDEN, IN), (1, HIDDEN), (OUT, HIDDEN), (1, OUT)}
    for nth in range(1, ACCUMULATED):
        new = [block for block in run.born("backward", nth=nth) if block.shape in gradients]
        assert sum(block.bytes for block in new) == PARAMETERS * F32
        assert {block.category.value for block in new} == {"temporaries"}
    assert run.held(run.end("backward", nth=ACCUMULATED - 1))["gradients"] == PARAMETERS * F32


def test_accumulation_beyond_two_micro_batches_adds_only_inputs(train: Callable[..., Any]) -> None:
    peaks = [
        max(train(two_layers, rows(), gradient_accumulation_steps=steps).timeline.in_use()) - steps * INPUT
        for steps in (2, 3, 8)
    ]
    assert peaks[0] == peaks[1] == peaks[2]


# Checkpointing


class Checkpointed(nn.Module):
    """A layer, a checkpointed pair of layers with GELU between, a layer."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(IN, HIDDEN)
        self.inside = nn.Sequential(nn.Linear(HIDDEN, 2 * HIDDEN), nn.GELU(), nn.Linear(2 * HIDDEN, HIDDEN))
        self.last = nn.Linear(HIDDEN, OUT)
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(self.inside, self.first(x), use_reentrant=self.use_reentrant))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_keeps_its_input_and_computes_the_rest_again(
    train: Callable[..., Any], use_reentrant: bool
) -> None:
    run = train(lambda: Summed(Checkpointed(use_reentrant)), rows())
    hidden = ROWS * HIDDEN * F32
    inner = 2 * hidden
    # The checkpoint's input, and the input of the layer after it.
    assert run.held(run.end("forward"))["activations"] == 2 * hidden
    again = [block for block in run.born("backward") if block.category.value == "activations"]
    # GELU's input and output, made anew in backward by the modules that made them before.
    assert [(block.bytes, block.module) for block in again] == [(inner, "body.inside.0"), (inner, "body.inside.1")]
    assert run.held(run.end("backward"))["activations"] == 0


def test_a_reentrant_checkpoint_computes_its_last_output_again_and_the_other_kind_stops_early(
    train: Callable[..., Any],
) -> None:
    def made_again(use_reentrant: bool) -> list[str]:
        blocks = train(lambda: Summed(Checkpointed(use_reentrant)), rows()).born("backward")
        return [block.module for block in blocks if block.op in ("aten.addmm.default", "aten.gelu.default")]

    assert made_again(use_reentrant=False) == ["body.inside.0", "body.inside.1"]
    assert made_again(use_reentrant=True) == ["body.inside.0", "body.inside.1", "body.inside.2"]


# Mixed precision


def test_autocast_copies_of_all_weights_live_until_the_end_of_forward(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), precision=Precision.FP16)
    copies = [block for block in run.born("forward") if block.category.value == "autocast_copies"]
    assert [block.shape for block in copies] == [(HIDDEN, IN), (HIDDEN,), (OUT, HIDDEN), (OUT,)]
    # At the peak: all of them. After forward: the weight that backward multiplies with; the first layer's input is
    # the model's and needs no gradient, so its weight is not kept.
    assert run.held(run.peak("forward"))["autocast_copies"] == PARAMETERS * F16
    assert run.held(run.end("forward"))["autocast_copies"] == OUT * HIDDEN * F16
    assert run.held(run.end("backward"))["autocast_copies"] == 0


def test_with_fp16_activations_are_half_and_weights_and_gradients_are_not(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), steps=2, precision=Precision.FP16, optimizer="adamw_torch")
    forward, optimizer = run.held(run.end("forward", step=2)), run.held(run.end("optimizer", step=2))
    # The fp16 copy of the input and ReLU's output.
    assert forward["activations"] == INPUT // 2 + RELU // 2
    assert optimizer["parameters"] == optimizer["gradients"] == PARAMETERS * F32
    assert optimizer["optimizer_state"] == 2 * PARAMETERS * F32


# The whole recording


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw_torch", "adamw_torch_fused", "adafactor"])
def test_what_lives_between_steps_can_be_named(train: Callable[..., Any], optimizer: str, precision: Precision) -> None:
    run = train(two_layers, rows(), steps=3, optimizer=optimizer, precision=precision, max_grad_norm=1.0)
    held = run.held(run.end("zero_grad", step=2))
    state = held.pop("optimizer_state", 0)
    assert state == run.held(run.end("optimizer", step=1))["optimizer_state"]
    # With fp16 the scale of the loss, and the count of steps since it grew.
    scaler = 2 * SCALAR if precision is Precision.FP16 else 0
    assert held == {
        "parameters": PARAMETERS * F32,
        # The batch that was just trained on dies when the next is there.
        "inputs_and_buffers": INPUT + scaler,
        "workspace": 2 * CUBLAS,
        "temporaries": 3 * SCALAR,  # the running loss, the last micro-batch's, and the norm of the gradients
    }


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
def test_every_block_dies_but_those_that_outlive_the_loop(train: Callable[..., Any], precision: Precision) -> None:
    run = train(two_layers, rows(), steps=2, optimizer="adamw_torch", precision=precision)
    held = run.held(run.last())
    scales = 2 * SCALAR if precision is Precision.FP16 else 0  # the loss scale and its growth tracker
    assert held.pop("inputs_and_buffers", 0) == scales
    assert held == {
        "parameters": PARAMETERS * F32, "optimizer_state": 2 * PARAMETERS * F32, "workspace": 2 * CUBLAS,
    }  # fmt: skip
    assert run.timeline.in_use()[-1] == sum(block.bytes for block in run.alive(run.last()))


def test_forward_and_backward_have_a_cublas_workspace_each_and_keep_it(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), steps=2)
    workspaces = [block for block in run.alive(run.last()) if block.category.value == "workspace"]
    assert [block.bytes for block in workspaces] == [CUBLAS, CUBLAS]
    assert run.held(run.end("setup", step=0))["workspace"] == 0
    assert run.held(run.end("forward"))["workspace"] == CUBLAS
    assert run.held(run.end("backward"))["workspace"] == run.held(run.last())["workspace"] == 2 * CUBLAS


def test_hopper_takes_32_mib_for_each_cublas_workspace(train: Callable[..., Any]) -> None:
    run = train(two_layers, rows(), capability="9.0")
    assert run.held(run.last())["workspace"] == 2 * 32 * 1024 * 1024


def test_a_model_without_products_has_no_cublas_workspace(train: Callable[..., Any]) -> None:
    run = train(lambda: Summed(nn.LayerNorm(IN)), rows())
    assert run.held(run.last())["workspace"] == 0
