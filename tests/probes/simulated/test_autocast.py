"""Autocast on the simulated GPU: the types that CUDA's lists give, and the life of the copies of weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from memdoctor.probes.simulated import autocast
from memdoctor.probes.simulated.device import NAME
from memdoctor.probes.simulated.releases import INSTALLED
from memdoctor.records import Precision

ROWS, WIDTH = 4, 8
F16, F32 = 2, 4
DTYPES = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}


class Asking(nn.Module):
    """Runs ``question(x, half, weight)`` in forward and notes the type of the answer; the loss is about nothing.

    ``x`` is fp32 ``[rows, width]``, ``half`` the same in 16 bits, ``weight`` an fp32 parameter ``[width, width]``.
    """

    def __init__(self, question: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH, WIDTH))
        self.question, self.dtype = question, dtype
        self.answer: list[torch.dtype] = []

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.answer.append(self.question(x, x.to(self.dtype), self.weight).dtype)
        return {"loss": self.weight.norm()}


@pytest.fixture(scope="module")
def type_of(train: Callable[..., Any]) -> Callable[..., torch.dtype]:
    """The type of what an operator returns under autocast."""

    def ask(question: Callable[..., torch.Tensor], precision: Precision = Precision.FP16) -> torch.dtype:
        models: list[Asking] = []

        def make() -> nn.Module:
            models.append(Asking(question, DTYPES[precision]))
            return models[0]

        train(make, {"x": torch.zeros(ROWS, WIDTH)}, precision=precision)
        return models[0].answer[0]

    return ask


def batched(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(1, ROWS, WIDTH)


# torch.amp's documentation, "CUDA Op-Specific Behavior": three lists, and what is on none of them.


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
@pytest.mark.parametrize(
    "question",
    [
        pytest.param(lambda x, half, weight: functional.linear(x, weight), id="linear"),
        pytest.param(lambda x, half, weight: x @ weight, id="matmul"),
        pytest.param(lambda x, half, weight: half @ weight, id="matmul of two types"),
        pytest.param(lambda x, half, weight: torch.mm(x, weight), id="mm"),
        pytest.param(lambda x, half, weight: torch.addmm(x, x, weight), id="addmm"),
        pytest.param(lambda x, half, weight: torch.bmm(batched(x), batched(x).mT), id="bmm"),
        pytest.param(lambda x, half, weight: torch.baddbmm(batched(x), batched(x), weight[None]), id="baddbmm"),
        pytest.param(lambda x, half, weight: torch.einsum("ij,kj->ik", x, weight), id="einsum"),
        pytest.param(lambda x, half, weight: functional.conv1d(batched(x).mT, weight[:, :, None]), id="conv1d"),
        pytest.param(
            lambda x, half, weight: functional.scaled_dot_product_attention(*3 * [batched(x)[None]]), id="attention"
        ),
    ],
)
def test_products_run_in_16_bits(type_of: Callable[..., Any], question: Any, precision: Precision) -> None:
    assert type_of(question, precision) is DTYPES[precision]


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(lambda x, half, weight: half.softmax(-1), id="softmax"),
        pytest.param(lambda x, half, weight: half.log_softmax(-1), id="log_softmax"),
        pytest.param(lambda x, half, weight: functional.layer_norm(half, [WIDTH]), id="layer_norm"),
        pytest.param(lambda x, half, weight: functional.group_norm(half, 2), id="group_norm"),
        pytest.param(lambda x, half, weight: half.exp(), id="exp"),
        pytest.param(lambda x, half, weight: half.log(), id="log"),
        pytest.param(lambda x, half, weight: half.pow(2), id="pow"),
        pytest.param(lambda x, half, weight: 2**half, id="number to a power"),
        pytest.param(lambda x, half, weight: half.rsqrt(), id="rsqrt"),
        pytest.param(lambda x, half, weight: functional.softplus(half), id="softplus"),
        pytest.param(lambda x, half, weight: half.sum(), id="sum"),
        pytest.param(lambda x, half, weight: half.sum(-1), id="sum of rows"),
        pytest.param(lambda x, half, weight: half.cumsum(-1), id="cumsum"),
        pytest.param(lambda x, half, weight: half.norm(), id="norm"),
        pytest.param(lambda x, half, weight: functional.mse_loss(half, half), id="mse_loss"),
        pytest.param(lambda x, half, weight: functional.l1_loss(half, half), id="l1_loss"),
        pytest.param(lambda x, half, weight: functional.binary_cross_entropy_with_logits(half, half), id="bce"),
        pytest.param(
            lambda x, half, weight: functional.cross_entropy(
                half, torch.zeros(ROWS, dtype=torch.long, device=x.device)
            ),
            id="cross_entropy",
        ),
        pytest.param(lambda x, half, weight: functional.cosine_similarity(half, half), id="cosine_similarity"),
    ],
)
def test_sums_norms_and_losses_run_in_fp32(type_of: Callable[..., Any], question: Any) -> None:
    assert type_of(question) is torch.float32


@pytest.mark.parametrize(
    ("question", "dtype"),
    [
        pytest.param(lambda x, half, weight: torch.dot(half[0], x[0]), torch.float32, id="dot of both"),
        pytest.param(lambda x, half, weight: torch.dot(half[0], half[0]), torch.float16, id="dot of halves"),
        pytest.param(lambda x, half, weight: torch.addcmul(half, half, x), torch.float32, id="addcmul of both"),
        pytest.param(lambda x, half, weight: torch.atan2(half, x), torch.float32, id="atan2 of both"),
        pytest.param(
            lambda x, half, weight: x.scatter_add(0, torch.zeros(1, 1, dtype=torch.long, device=x.device), half),
            torch.float32,
            id="scatter_add of both",
        ),
    ],
)
def test_some_run_in_the_widest_type_that_they_are_given(
    type_of: Callable[..., Any], question: Any, dtype: torch.dtype
) -> None:
    assert type_of(question) is dtype


@pytest.mark.parametrize(
    ("question", "dtype"),
    [
        pytest.param(lambda x, half, weight: functional.gelu(half), torch.float16, id="gelu"),
        pytest.param(lambda x, half, weight: half.tanh(), torch.float16, id="tanh"),
        pytest.param(lambda x, half, weight: functional.dropout(half, 0.1), torch.float16, id="dropout"),
        pytest.param(lambda x, half, weight: half.mean(), torch.float16, id="mean"),
        pytest.param(lambda x, half, weight: half + half, torch.float16, id="add halves"),
        pytest.param(lambda x, half, weight: half + x, torch.float32, id="add both: ordinary promotion"),
        pytest.param(
            lambda x, half, weight: functional.embedding(torch.zeros(1, dtype=torch.long, device=x.device), weight),
            torch.float32,
            id="embedding: the type of its table",
        ),
    ],
)
def test_all_others_run_as_they_are(type_of: Callable[..., Any], question: Any, dtype: torch.dtype) -> None:
    assert type_of(question) is dtype


def test_integers_are_never_cast(type_of: Callable[..., Any]) -> None:
    assert type_of(lambda x, half, weight: x.long().sum()) is torch.int64


def test_double_precision_is_never_cast(type_of: Callable[..., Any]) -> None:
    assert type_of(lambda x, half, weight: x.double().exp()) is torch.float64


# Copies of activations


def births(train: Callable[..., Any], precision: Precision, operator: Callable[..., Any]) -> list[tuple[str, int]]:
    """Types and bytes of what forward makes of ``[rows, width]``, without the model's loss."""
    run = train(
        lambda: Asking(lambda x, half, weight: operator(half), DTYPES[precision]),
        {"x": torch.zeros(ROWS, WIDTH)},
        precision=precision,
    )
    made = [block for block in run.born("forward") if block.shape == (ROWS, WIDTH)]
    return [(block.dtype, block.bytes) for block in made if block.category.value != "inputs_and_buffers"]


def test_softmax_reads_fp16_and_writes_fp32_without_a_copy_of_its_input(train: Callable[..., Any]) -> None:
    half, single = ("float16", ROWS * WIDTH * F16), ("float32", ROWS * WIDTH * F32)
    assert births(train, Precision.FP16, lambda half: half.softmax(-1)) == [half, single]
    assert births(train, Precision.FP16, lambda half: half.log_softmax(-1)) == [half, single]


def test_softmax_of_bf16_needs_a_copy_of_its_input(train: Callable[..., Any]) -> None:
    half, single = ("bfloat16", ROWS * WIDTH * F16), ("float32", ROWS * WIDTH * F32)
    assert births(train, Precision.BF16, lambda half: half.softmax(-1)) == [half, single, single]


def test_layer_norm_needs_an_fp32_copy_of_its_input(train: Callable[..., Any]) -> None:
    half, single = ("float16", ROWS * WIDTH * F16), ("float32", ROWS * WIDTH * F32)
    made = births(train, Precision.FP16, lambda half: functional.layer_norm(half, [WIDTH]))
    assert made == [half, single, single]


# The cache of weights


class Layers(nn.Module):
    """``forward(x, layer)`` is a function of the input and one linear layer without bias."""

    def __init__(self, run: Callable[..., torch.Tensor], *, frozen: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, bias=False)
        self.trained = nn.Parameter(torch.empty(WIDTH))
        self.layer.requires_grad_(not frozen)
        self.run = run

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.run(x * self.trained, self.layer).sum()}


def weight_casts(train: Callable[..., Any], run: Callable[..., torch.Tensor], **settings: Any) -> Any:
    """The blocks of the layer's weight in 16 bits that forward made, and the recording."""
    recording = train(
        lambda: Layers(run, **settings), {"x": torch.zeros(ROWS, WIDTH)}, precision=Precision.FP16, steps=2
    )
    casts = [b for b in recording.born("forward") if b.shape == (WIDTH, WIDTH) and b.dtype == "float16"]
    return casts, recording


def test_a_weight_is_cast_once_in_a_region(train: Callable[..., Any]) -> None:
    casts, _ = weight_casts(train, lambda x, layer: layer(layer(layer(x))))
    assert [block.category.value for block in casts] == ["autocast_copies"]


def test_a_weight_is_cast_again_in_the_next_step(train: Callable[..., Any]) -> None:
    _, run = weight_casts(train, lambda x, layer: layer(x))
    first, second = (
        [block.bytes for block in run.born("forward", step=step) if block.category.value == "autocast_copies"]
        for step in (1, 2)
    )
    assert first == second == [WIDTH * WIDTH * F16]
    assert run.held(run.end("backward", step=1))["autocast_copies"] == 0


def test_a_weight_that_needs_no_gradient_is_cast_at_every_use_and_not_kept_in_the_cache(
    train: Callable[..., Any],
) -> None:
    casts, _ = weight_casts(train, lambda x, layer: layer(layer(x)), frozen=True)
    assert len(casts) == 2
    # Each product keeps the copy that it used, for the gradient of its input: an activation, not a cached copy.
    assert {block.category.value for block in casts} == {"activations"}


def test_a_view_of_a_weight_is_not_cached(train: Callable[..., Any]) -> None:
    casts, _ = weight_casts(
        train, lambda x, layer: functional.linear(functional.linear(x, layer.weight.T), layer.weight.T)
    )
    assert len(casts) == 2


def test_a_region_inside_another_leaves_the_cache_alone(train: Callable[..., Any]) -> None:
    def switched_off_in_between(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        first = layer(x)
        with torch.autocast(NAME, enabled=False):
            second = layer(first.float())
        return layer(second)

    casts, _ = weight_casts(train, switched_off_in_between)
    assert [block.category.value for block in casts] == ["autocast_copies"]


def test_a_region_without_cache_casts_at_every_use(train: Callable[..., Any]) -> None:
    def uncached(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        with torch.autocast(NAME, dtype=torch.float16, cache_enabled=False):
            return layer(layer(x))

    casts, _ = weight_casts(train, uncached)
    assert len(casts) == 2


# Checkpointing enters autocast again in backward, where it is the outermost region


class CheckpointedStack(nn.Module):
    """Two checkpointed pairs of layers, and a layer that is not."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.stack = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(2)
        )
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.first(x)
        for layer in self.stack:
            hidden = checkpoint(layer, hidden, use_reentrant=self.use_reentrant)
        return {"loss": hidden.sum()}


PAIR = 2 * (WIDTH * 2 * WIDTH) + 2 * WIDTH + WIDTH  # parameters of one checkpointed pair
FIRST = WIDTH * WIDTH + WIDTH


@pytest.fixture(scope="module", params=[False, True], ids=["non-reentrant", "reentrant"])
def checkpointed(request: pytest.FixtureRequest, train: Callable[..., Any]) -> Any:
    batch = {"x": torch.zeros(ROWS, WIDTH)}
    return train(lambda: CheckpointedStack(request.param), batch, precision=Precision.FP16, steps=3)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_checkpointed_layers_copies_live_until_the_end_of_forward(checkpointed: Any, step: int) -> None:
    assert checkpointed.held(checkpointed.peak("forward", step))["autocast_copies"] == (2 * PAIR + FIRST) * F16
    assert checkpointed.held(checkpointed.end("forward", step))["autocast_copies"] == 0


@pytest.mark.parametrize("step", [1, 2, 3])
def test_when_a_checkpointed_layer_runs_again_its_copies_are_made_again_and_only_its_own_are_there(
    checkpointed: Any, step: int
) -> None:
    made = [b for b in checkpointed.born("backward", step) if b.category.value == "autocast_copies"]
    assert sum(block.bytes for block in made) == 2 * PAIR * F16
    phase = checkpointed.phase("backward", step)
    most = max(checkpointed.held(instant)["autocast_copies"] for instant in range(phase.begin, phase.end))
    assert most == PAIR * F16
    assert checkpointed.held(checkpointed.end("backward", step))["autocast_copies"] == 0


# The lists themselves

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


def of_header(macro: str) -> set[str]:
    """The operators that a macro of ``autocast_mode.h`` lists, without those on named dimensions."""
    text = HEADER.read_text().replace("\\\n", "\n")
    body = text.split(f"#define {macro}(_)")[1].split("#define")[0].split("#else")[0]
    entries = re.findall(r"^ *_\((\w+)(?:, *(\w+))?\)", body, re.MULTILINE)
    names = (f"{name}.{overload}" if overload else name for name, overload in entries)
    return {name for name in names if "imname" not in name}


@pytest.mark.parametrize(
    ("macro", "listed"),
    [
        ("AT_FORALL_LOWER_PRECISION_FP", autocast.LOWER_PRECISION),
        ("AT_FORALL_FP32", autocast.FP32),
        ("AT_FORALL_FP32_SET_OPT_DTYPE", autocast.FP32_BY_DTYPE_ARGUMENT),
        ("AT_FORALL_PROMOTE", autocast.PROMOTE),
    ],
)
def test_the_lists_are_those_of_the_installed_torch(macro: str, listed: tuple[str, ...]) -> None:
    assert set(listed) == of_header(macro)
    assert len(set(listed)) == len(listed)


def test_norms_that_take_another_overload_are_those_of_the_installed_torch() -> None:
    body = HEADER.read_text().split("#define AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(_)")[1].split("#define")[0]
    names = {name for name in re.findall(r'"(norm\.\w+)"', body) if "names" not in name}
    assert set(autocast.FP32_BY_ANOTHER_OVERLOAD) == names == {"norm.Scalar", "norm.ScalarOpt_dim"}


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(lambda x, half, weight: torch.ops.aten.norm.Scalar(half), id="norm"),
        pytest.param(lambda x, half, weight: torch.ops.aten.norm.Scalar(half, 3), id="third norm"),
        pytest.param(lambda x, half, weight: torch.ops.aten.norm.ScalarOpt_dim(half, 2, [1]), id="norm of rows"),
        pytest.param(lambda x, half, weight: torch.linalg.matrix_norm(half), id="norm of a matrix"),
    ],
)
def test_norms_run_in_fp32(type_of: Callable[..., Any], question: Any) -> None:
    assert type_of(question) is torch.float32


@pytest.mark.skipif(not INSTALLED.casts_rms_norm, reason="not listed before torch 2.12")
def test_rms_norm_runs_in_fp32(type_of: Callable[..., Any]) -> None:
    assert type_of(lambda x, half, weight: functional.rms_norm(half, [WIDTH])) is torch.float32


def test_sums_of_double_precision_are_not_cast(type_of: Callable[..., Any]) -> None:
    assert type_of(lambda x, half, weight: x.double().sum()) is torch.float64
    assert type_of(lambda x, half, weight: x.double().softmax(-1)) is torch.float64


def test_binary_cross_entropy_is_refused_as_on_cuda(type_of: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError, match="unsafe to autocast"):
        type_of(lambda x, half, weight: functional.binary_cross_entropy(x, x))


def test_a_model_of_16_bits_makes_no_copies(train: Callable[..., Any]) -> None:
    class Halved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(WIDTH, WIDTH, dtype=torch.bfloat16)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.layer(x).sum()}

    batch = {"x": torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16)}
    recording = train(Halved, batch, precision=Precision.BF16)
    assert [block.category.value for block in recording.timeline.blocks].count("autocast_copies") == 0
    assert recording.held(recording.last())["parameters"] == (WIDTH * WIDTH + WIDTH) * F16


def test_without_gradients_nothing_is_cached_that_needs_none(train: Callable[..., Any]) -> None:
    def evaluated(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
        with torch.no_grad():
            seen = layer(x)
        return layer(x) + seen

    casts, recording = weight_casts(train, evaluated)
    # A leaf that needs a gradient is cached under no_grad too, and the cached copy is of no use to autograd later:
    # PyTorch keeps it all the same (cached_cast asks for the leaf, not for grad mode).
    assert [block.category.value for block in casts] == ["autocast_copies"]
    assert recording.held(recording.end("backward"))["autocast_copies"] == 0
