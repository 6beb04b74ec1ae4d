"""What each optimizer holds and takes in its step, worked out by hand on a toy with parameters of every kind.

The Trainer has them in two groups: weights, then biases. Temporaries are those that a phase adds to what was alive
when it began.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import nn

from memdoctor.errors import InputError
from memdoctor.probes.optimizers import OPTIMIZERS
from memdoctor.records import Precision

F32 = 4
EMBEDDING = 100 * 64
LARGE = 128 * 64  # the only one of 4096 elements or more besides the embedding
SMALL = 3 * 128
WEIGHTS = EMBEDDING + LARGE + SMALL
BIASES = 128 + 3
ALL = WEIGHTS + BIASES
TENSORS = 5
QMAP = 256 * F32  # a map of quantisation
TARGET = {"optim_target_modules": ("large",), "optim_args": "rank=8"}
PROJECTED = ALL - LARGE + 128 * 8  # elements of a moment when the large weight's is projected to rank 8
PROJECTOR = 64 * 64  # eight of its rows are used, and they are a view

# The state of bitsandbytes in 8 bits: embeddings, and what is smaller than 4096 elements, stay in 32.
BNB_32 = EMBEDDING + SMALL + BIASES
BNB_ABSMAX = LARGE // 256 * F32
# torchao quantises what has 4096 elements or more, with maps of its own for each; two learning rates are tensors.
AO_32 = SMALL + BIASES


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        self.large = nn.Linear(64, 128)
        self.small = nn.Linear(128, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.small(self.large(self.embedding(x))).sum()}


TOKENS = {"x": torch.zeros(4, 5, dtype=torch.long)}


def need(name: str) -> None:
    module = OPTIMIZERS[name].module.partition(".")[0]
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


@pytest.fixture
def step(train: Callable[..., Any]) -> Callable[..., Any]:
    """``step(optimizer, make_model, batch, **workload)``: two steps of training with an optimizer."""

    def two_steps(
        optimizer: str,
        make_model: Callable[[], nn.Module] = Toy,
        batch: dict[str, torch.Tensor] = TOKENS,
        **workload: Any,
    ) -> Any:
        need(optimizer)
        return train(make_model, batch, steps=2, optimizer=optimizer, **workload)

    return two_steps


def state(run: Any) -> int:
    """Bytes of the optimizer's state when the second step is done."""
    held: int = run.held(run.last())["optimizer_state"]
    return held


def temporaries(run: Any, phase: str = "optimizer", step: int = 1) -> int:
    """What the phase holds at its peak of temporaries that were not there when it began."""
    before = run.held(run.phase(phase, step).begin - 1)["temporaries"]
    held: int = run.held(run.peak(phase, step))["temporaries"]
    return held - before


# Two moments of everything; fused ones count their steps on the GPU. sqrt(v) of a group is the temporary of foreach.
TORCH = {
    "adamw_torch": ({}, 2 * ALL * F32, WEIGHTS * F32, WEIGHTS * F32),
    "adamw_torch_fused": ({}, 2 * ALL * F32 + TENSORS * F32, 0, 0),
    "sgd": ({}, 0, 0, 0),
    "sgd momentum": ({"optim_args": "momentum=0.9"}, ALL * F32, 0, 0),
    "sgd nesterov": ({"optim_args": "momentum=0.9,nesterov=true"}, ALL * F32, 0, 0),
    # The root of the sums, and the gradients times the learning rate.
    "adagrad": ({}, ALL * F32, 2 * WEIGHTS * F32, 2 * WEIGHTS * F32),
    "rmsprop": ({}, ALL * F32, WEIGHTS * F32, WEIGHTS * F32),
    "rmsprop momentum": ({"optim_args": "momentum=0.9"}, 2 * ALL * F32, WEIGHTS * F32, WEIGHTS * F32),
}
NEED_OPTIM_ARGS = ("sgd momentum", "sgd nesterov", "rmsprop momentum")
# Row and column sums of matrices, all of vectors, and one number for each. A parameter at a time: the update before
# and after the sums, and what is left of the embedding's.
ADAFACTOR = (100 + 64 + 128 + 64 + 3 + 128 + 128 + 3 + TENSORS) * F32
TRANSFORMERS = {"adafactor": ({}, ADAFACTOR, (EMBEDDING + 2 * LARGE) * F32, (EMBEDDING + 2 * LARGE) * F32)}

# In place, in kernels that take no memory: nothing but the state.
BITSANDBYTES: dict[str, Any] = {
    "adamw_8bit": 2 * (BNB_32 * F32 + LARGE + BNB_ABSMAX + QMAP),
    "adamw_bnb_8bit": 2 * (BNB_32 * F32 + LARGE + BNB_ABSMAX + QMAP),
    "lion_8bit": BNB_32 * F32 + LARGE + BNB_ABSMAX + QMAP,
    "rmsprop_bnb_8bit": BNB_32 * F32 + LARGE + BNB_ABSMAX + QMAP,
    "ademamix_8bit": 3 * (BNB_32 * F32 + LARGE + BNB_ABSMAX) + 2 * QMAP,
    "ademamix": 3 * ALL * F32,
    "lion_32bit": ALL * F32,
    "rmsprop_bnb": ALL * F32,
    "rmsprop_bnb_32bit": ALL * F32,
    # Below 100,000 elements nothing is paged.
    "paged_adamw_32bit": 2 * ALL * F32,
    "paged_adamw_8bit": 2 * (BNB_32 * F32 + LARGE + BNB_ABSMAX + QMAP),
    "paged_lion_32bit": ALL * F32,
    "paged_lion_8bit": BNB_32 * F32 + LARGE + BNB_ABSMAX + QMAP,
    "paged_ademamix_32bit": 3 * ALL * F32,
    "paged_ademamix_8bit": 3 * (BNB_32 * F32 + LARGE + BNB_ABSMAX) + 2 * QMAP,
}
OTHERS = {
    **{name: ({}, nbytes, 0, 0) for name, nbytes in BITSANDBYTES.items()},
    "adamw_torch_8bit": (
        {}, 2 * (EMBEDDING + LARGE + (EMBEDDING + LARGE) // 256 * F32 + 2 * QMAP + AO_32 * F32) + 2 * F32, 0, 0,
    ),
    # A map of 16. New moments, their codes as int64 and their scales, of the large weight.
    "adamw_torch_4bit": (
        {},
        2 * ((EMBEDDING + LARGE) // 2 + (EMBEDDING + LARGE) // 256 * F32 + 2 * 16 * F32 + AO_32 * F32) + 2 * F32,
        2 * (LARGE * (F32 + 8) + LARGE // 256 * F32),
        2 * (LARGE * (F32 + 8) + LARGE // 256 * F32),
    ),
    # Two moments and, in each, a square of eps, a counter that is not used, and a sum of squares.
    "stable_adamw": ({}, 2 * ALL * F32 + TENSORS * (F32 + 1 + F32), 0, 0),
    # The denominators of a group; those of the first are there while those of the second are made.
    "schedule_free_adamw": ({}, 2 * ALL * F32, ALL * F32, ALL * F32),
    "schedule_free_radam": ({}, 2 * ALL * F32, 0, ALL * F32),  # none before the fifth step, which the second is
    "schedule_free_sgd": ({}, ALL * F32, 0, 0),
    # State is on the host, three moments of one parameter on the GPU; twice its gradient, and one of the embedding.
    "grokadamw": ({}, 0, (5 * LARGE + EMBEDDING) * F32, (5 * LARGE + EMBEDDING) * F32),
    # The low-rank gradient, its denominator and its quotient; the update, and the update scaled. Later, the singular
    # vectors of a new projection and the copy that the solver overwrites, with the old projection still there.
    "galore_adamw": (
        TARGET, (2 * PROJECTED + PROJECTOR) * F32, (3 * 128 * 8 + 2 * LARGE) * F32, (2 * LARGE + 64 + 2 * 3) * F32,
    ),
    # The low-rank gradient and update; the update, and the update scaled. Later as before.
    "galore_adafactor": (
        TARGET,
        (100 + 64 + 128 + 8 + 3 + 128 + BIASES + TENSORS + PROJECTOR) * F32,
        (2 * 128 * 8 + 2 * LARGE) * F32,
        (2 * LARGE + 64 + 3) * F32,
    ),
    # The low-rank gradient, its denominator and its quotient, one factor a channel, the scaled gradient. Later, that
    # once more, limited, with the norm and the limit. The norm is state.
    "apollo_adamw": (
        TARGET,
        (2 * PROJECTED + 8 * 64 + 1) * F32,
        (3 * 128 * 8 + 128 + LARGE) * F32,
        (3 * 128 * 8 + 128 + 2 * LARGE + 2) * F32,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", [*TORCH, *TRANSFORMERS, *OTHERS])
def test_state_and_temporaries_of_the_first_and_of_later_steps(case: str, step: Callable[..., Any]) -> None:
    settings, kept, first, later = {**TORCH, **TRANSFORMERS, **OTHERS}[case]
    if case in NEED_OPTIM_ARGS and find_spec("transformers.trainer_optimizer") is None:
        pytest.skip("this release of transformers passes over optim_args of torch's optimizers")
    run = step(case.split(maxsplit=1)[0], **settings)
    assert state(run) == kept
    assert (temporaries(run), temporaries(run, step=2)) == (first, later)


def test_every_optimizer_is_worked_out_here() -> None:
    in_backward = {"lomo", "adalomo", "galore_adamw_layerwise", "apollo_adamw_layerwise"}
    assert {case.split()[0] for case in (*TORCH, *TRANSFORMERS, *OTHERS)} | in_backward == set(OPTIMIZERS)


@pytest.mark.parametrize("case", ["adamw_torch_fused", "adamw_8bit", "lion_32bit"])
def test_the_first_step_makes_the_state_and_the_second_nothing(case: str, step: Callable[..., Any]) -> None:
    run = step(case)
    made = [block for block in run.born("optimizer") if block.category.value == "optimizer_state"]
    assert sum(block.bytes for block in made) == state(run)
    assert run.born("optimizer", 2) == []


# Paged state.


class Paged(nn.Module):
    """A weight of 131,072 elements, which is 100,000 or more, and a bias of 256."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(512, 256)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(x).sum()}


@pytest.mark.parametrize(
    ("optimizer", "kept"),
    [
        ("paged_adamw_32bit", 2 * 256 * F32),
        ("paged_lion_32bit", 256 * F32),
        ("paged_adamw_8bit", 2 * (256 * F32 + 131072 // 256 * F32 + QMAP)),
        ("paged_lion_8bit", 256 * F32 + 131072 // 256 * F32 + QMAP),
        ("paged_ademamix_8bit", 3 * (256 * F32 + 131072 // 256 * F32) + 2 * QMAP),
    ],
)
def test_paged_state_is_not_of_the_allocator(optimizer: str, kept: int, step: Callable[..., Any]) -> None:
    run = step(optimizer, Paged, {"x": torch.zeros(4, 512)})
    assert state(run) == kept
    assert (temporaries(run), temporaries(run, step=2)) == (0, 0)


# Parameters of other kinds.


def half_precision() -> nn.Module:
    torch.set_default_dtype(torch.bfloat16)
    try:
        return Toy()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("optimizer", "kept"),
    [
        ("adamw_torch", 2 * ALL * 2),  # moments have the parameters' type
        ("adamw_8bit", 2 * (BNB_32 * F32 + LARGE + BNB_ABSMAX + QMAP)),  # 32 bits and 8, whatever they have
        ("paged_adamw_32bit", 2 * ALL * F32),
        ("lion_32bit", ALL * F32),
        ("stable_adamw", 3 * ALL * 2 + TENSORS * (2 + F32)),  # and a compensation, in the parameters' type
    ],
)
def test_the_state_of_bf16_parameters(optimizer: str, kept: int, step: Callable[..., Any]) -> None:
    assert state(step(optimizer, half_precision)) == kept


class Tied(Toy):
    """A second large layer, whose weight is the first's."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 128, bias=False)
        self.head.weight = self.large.weight


@pytest.mark.parametrize(("optimizer", "kept"), [("adamw_torch", 2 * ALL * F32), ("lion_32bit", ALL * F32)])
def test_a_weight_that_two_layers_share_has_one_state(optimizer: str, kept: int, step: Callable[..., Any]) -> None:
    assert state(step(optimizer, Tied)) == kept


def frozen() -> nn.Module:
    model = Toy()
    model.embedding.requires_grad_(False)
    model.large.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("optimizer", "kept"),
    [
        ("adamw_torch", 2 * (SMALL + 3) * F32),
        ("adafactor", (3 + 128 + 3 + 2) * F32),
        ("adamw_8bit", 2 * (SMALL + 3) * F32),  # nothing has 8 bits, and no map is needed
        ("adalomo", ADAFACTOR - TENSORS * F32),  # it makes state for frozen ones as well
    ],
)
def test_frozen_parameters_have_no_state(optimizer: str, kept: int, step: Callable[..., Any]) -> None:
    assert state(step(optimizer, frozen)) == kept


# Optimizers that update weights in backward.


@pytest.mark.parametrize(
    ("optimizer", "settings", "kept"),
    [
        ("lomo", {}, 0),
        ("adalomo", {}, ADAFACTOR - TENSORS * F32),
        ("galore_adamw_layerwise", TARGET, (2 * PROJECTED + PROJECTOR) * F32),
        ("apollo_adamw_layerwise", TARGET, (2 * PROJECTED + 8 * 64 + 1) * F32),
    ],
)
def test_gradients_are_consumed_in_backward(
    optimizer: str, settings: dict[str, Any], kept: int, step: Callable[..., Any]
) -> None:
    run = step(optimizer, max_grad_norm=1.0, **settings)
    assert state(run) == kept
    for number in (1, 2):
        assert run.held(run.end("backward", number))["gradients"] == 0
        assert run.born("optimizer", number) == []


def test_lomo_holds_a_gradient_until_the_next_is_there(step: Callable[..., Any]) -> None:
    run = step("lomo")
    phase = run.phase("backward", 2)
    most = max(run.held(instant)["gradients"] for instant in range(phase.begin, phase.end))
    assert most == (LARGE + EMBEDDING) * F32


def test_a_layerwise_optimizer_holds_the_gradients_of_one_layer(step: Callable[..., Any]) -> None:
    run = step("galore_adamw_layerwise", **TARGET)
    phase = run.phase("backward", 2)
    most = max(run.held(instant)["gradients"] for instant in range(phase.begin, phase.end))
    assert most == (LARGE + 128) * F32  # one node of autograd makes those of weight and bias


@pytest.mark.parametrize("optimizer", ["lomo", "galore_adamw_layerwise"])
def test_a_gradient_scaler_is_refused_where_backward_updates(optimizer: str, step: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="does not train in fp16"):
        step(optimizer, precision=Precision.FP16, **TARGET)


def test_a_layerwise_optimizer_does_not_accumulate(step: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="refuses these settings") as refused:
        step("apollo_adamw_layerwise", gradient_accumulation_steps=2, **TARGET)
    assert "does not support gradient accumulation" in refused.value.why


# Loss scaling.


@pytest.mark.parametrize(
    ("optimizer", "first", "later"),
    [
        ("adamw_torch_fused", F32, F32),  # the kernel is told whether a gradient is infinite: a sum over devices
        ("adamw_torch", WEIGHTS * F32, WEIGHTS * F32),
        ("adamw_8bit", 0, 0),
    ],
)
def test_loss_scaling_adds_next_to_nothing_to_the_step_of_clipped_gradients(
    optimizer: str, first: int, later: int, step: Callable[..., Any]
) -> None:
    run = step(optimizer, precision=Precision.FP16, max_grad_norm=1.0)
    assert (temporaries(run), temporaries(run, step=2)) == (first, later)


def test_the_fused_step_unscales_by_itself(step: Callable[..., Any]) -> None:
    """Without clipping nobody unscales before: the kernel is given the scale, and whether a gradient is infinite."""
    run = step("adamw_torch_fused", precision=Precision.FP16)
    born = [block for block in run.born("optimizer", 2) if block.category.value == "temporaries"]
    assert {block.bytes for block in born} == {F32}
