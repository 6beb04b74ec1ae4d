"""Models of the user's own: a function that returns a module, or a module and a batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from memdoctor.errors import InputError
from memdoctor.probes.resolve import FACTORY_KEY, resolve_model
from memdoctor.probes.user_models import UserModel, load
from memdoctor.records import Attention, Dtype, Workload


class Classifier(nn.Module):
    """Takes token ids, and returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.head(self.words(input_ids).mean(1)), labels)


class Vectors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x).mean()


@pytest.fixture
def mine() -> Iterator[ModuleType]:
    """A module that can be imported as ``mine``; tests put factories in it."""
    module = ModuleType("mine")
    sys.modules["mine"] = module
    yield module
    del sys.modules["mine"]


def made(module: ModuleType, factory: object, **settings: object) -> UserModel:
    module.factory = factory  # type: ignore[attr-defined]
    return load("mine:factory", wanted(**settings))


def wanted(**settings: object) -> Workload:
    return Workload(model="mine:factory", **{"batch_size": 6, "seq_length": 10, **settings})  # type: ignore[arg-type]


def test_a_name_with_a_colon_is_a_factory_and_asks_nobody_else() -> None:
    facts = resolve_model("package.module:factory")
    assert facts.config == {FACTORY_KEY: "package.module:factory"}
    assert facts.max_seq_length is None


@pytest.mark.parametrize("name", ["module:", ":factory", "a b:c", "https://hub:factory", "mod-ule:f"])
def test_what_only_looks_like_one_is_not(name: str) -> None:
    with pytest.raises(InputError, match="unknown model"):
        resolve_model(name, offline=True)


def test_a_module_alone_gets_a_batch_of_what_its_forward_takes(mine: ModuleType) -> None:
    batch = made(mine, Classifier).batches(wanted(), 0)
    assert {name: tuple(value.shape) for name, value in batch.items()} == {"input_ids": (6, 10), "labels": (6,)}
    assert int(batch["input_ids"].max()) < 50  # its vocabulary


def test_a_batch_is_an_example_whose_rows_and_columns_are_repeated(mine: ModuleType) -> None:
    ids, labels = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([0, 1])
    model = made(mine, lambda: (Classifier(), {"input_ids": ids, "labels": labels}))
    batch = model.batches(wanted(batch_size=3, seq_length=4), 0)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 1], [4, 5, 6, 4], [1, 2, 3, 1]]
    assert batch["labels"].tolist() == [0, 1, 0]
    shorter = model.batches(wanted(batch_size=1, seq_length=2), 0)
    assert shorter["input_ids"].tolist() == [[1, 2]]


def test_numbers_have_rows_and_no_length(mine: ModuleType) -> None:
    batch = made(mine, lambda: (Vectors(), torch.ones(2, 4))).batches(wanted(), 0)
    assert {name: tuple(value.shape) for name, value in batch.items()} == {"0": (6, 4)}


def test_a_factory_that_takes_the_sizes_is_given_them(mine: ModuleType) -> None:
    def factory(batch_size: int, seq_length: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        ids = torch.ones(batch_size, 2 * seq_length, dtype=torch.long)
        return Classifier(), (ids, torch.zeros(batch_size, dtype=torch.long))

    batches = made(mine, factory).batches
    for batch, length in ((6, 10), (2, 3)):
        shapes = [tuple(value.shape) for value in batches(wanted(batch_size=batch, seq_length=length), 0).values()]
        assert shapes == [(batch, 2 * length), (batch,)]


def test_weights_are_stored_in_the_type_that_was_asked_for(mine: ModuleType) -> None:
    module = made(mine, Classifier, dtype=Dtype.BFLOAT16).module
    assert {parameter.dtype for parameter in module.parameters()} == {torch.bfloat16}


def test_a_module_keeps_the_types_that_it_was_made_with_where_none_is_asked_for(mine: ModuleType) -> None:
    module = made(mine, lambda: Classifier().double()).module
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float64}


def test_settings_that_are_the_factorys_to_make_are_refused(mine: ModuleType) -> None:
    with pytest.raises(InputError, match="chooses its attention itself") as refused:
        made(mine, Classifier, attention=Attention.EAGER)
    assert "--attn-implementation" in refused.value.hint
    with pytest.raises(InputError, match="without a config"):
        made(mine, Classifier, output_hidden_states=True)


def test_a_batch_needs_no_gradient(mine: ModuleType) -> None:
    batch = made(mine, lambda: (Vectors(), torch.ones(2, 4, requires_grad=True))).batches(wanted(), 0)
    assert not batch["0"].requires_grad


def fails() -> None:
    raise RuntimeError("no such file")


def leaves() -> None:
    sys.exit("no data")


@pytest.mark.parametrize(
    ("factory", "what", "told"),
    [
        (fails, "failed", f"{Path(__file__).name}:{fails.__code__.co_firstlineno + 1}"),
        (lambda: 3, "returned int", "a factory returns"),
        (lambda: (Classifier(), 3), "not made of tensors", "int"),
        (lambda: (Classifier(), {"input_ids": [1]}), "not made of tensors", "'input_ids' is list"),
        (lambda: (Classifier(), {}), "not made of tensors", "dict"),
        (lambda: (Classifier(), {"input_ids": torch.zeros(0, 3).long()}), "tensors with rows", "(0, 3)"),
        (lambda: (Classifier(), {"input_ids": torch.eye(3).to_sparse()}), "tensors with rows", "input_ids"),
        (lambda: (Classifier(), {"input_ids": torch.ones(1), "labels": None}), "tensors with rows", "'labels'"),
        (lambda: nn.DataParallel(Classifier()), "wrapped module", "the module itself"),
        (lambda: nn.LazyLinear(3), "not there yet", "call the module once"),
        (lambda: nn.Embedding(3, 4, sparse=True), "sparse gradients", "sparse=False"),
        (leaves, "failed", "SystemExit: no data"),
        (Vectors, "no batch", "takes x"),
        (nn.ReLU, "without parameters", "nothing to train"),
        (lambda depth: Classifier(), "failed", "depth"),
    ],
)
def test_what_is_no_factory_is_told_with_what_it_did(mine: ModuleType, factory: object, what: str, told: str) -> None:
    with pytest.raises(InputError, match=what) as refused:
        made(mine, factory)
    assert told in str(refused.value)


def test_a_function_that_is_not_there_is_told_with_those_that_are(mine: ModuleType) -> None:
    mine.build = fails  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="no function 'factory'") as refused:
        load("mine:factory", wanted())
    assert "build" in refused.value.hint


def test_a_module_that_cannot_be_imported_is_told_with_the_reason() -> None:
    with pytest.raises(InputError, match="nowhere_at_all cannot be imported") as refused:
        load("nowhere_at_all:factory", wanted())
    assert refused.value.why == "No module named 'nowhere_at_all'"
