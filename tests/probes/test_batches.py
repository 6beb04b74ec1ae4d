"""Synthetic batches have the shapes, masks and labels that a data collator would make."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from memdoctor.probes.batches import IGNORED, make_batch
from memdoctor.records import Task, Workload

ROWS, LENGTH, LABELS, VOCABULARY = 3, 12, 4, 200
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 8, "max_position_embeddings": 20,
}  # fmt: skip


def batch_of(model_type: str = "bert", seed: int = 0, types: int = 2, **settings: Any) -> dict[str, torch.Tensor]:
    config = transformers.AutoConfig.for_model(model_type, **SIZES, pad_token_id=1, type_vocab_size=types)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    workload = Workload(
        model="small", **{"batch_size": ROWS, "seq_length": LENGTH, "num_labels": LABELS, "task": Task.BASE, **settings}
    )
    return make_batch(model, config, workload, seed)


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        (Task.SEQUENCE_CLASSIFICATION, {"labels": ((ROWS,), 0, LABELS)}),
        (Task.TOKEN_CLASSIFICATION, {"labels": ((ROWS, LENGTH), 0, LABELS)}),
        (Task.MULTIPLE_CHOICE, {"labels": ((ROWS,), 0, LABELS)}),
        (Task.NEXT_SENTENCE, {"labels": ((ROWS,), 0, 2)}),
        (Task.MASKED_LM, {"labels": ((ROWS, LENGTH), IGNORED, VOCABULARY)}),
        (
            Task.QUESTION_ANSWERING,
            {"start_positions": ((ROWS,), 0, LENGTH), "end_positions": ((ROWS,), 0, LENGTH)},
        ),
        (Task.BASE, {}),
    ],
)
def test_labels_of_each_task(task: Task, labels: dict[str, tuple[tuple[int, ...], int, int]]) -> None:
    batch = batch_of(task=task)
    assert batch.keys() - {"input_ids", "attention_mask", "token_type_ids"} == labels.keys()
    for name, (shape, low, high) in labels.items():
        assert batch[name].shape == shape
        assert batch[name].dtype is torch.long
        assert low <= int(batch[name].min()) <= int(batch[name].max()) < high


def test_masked_language_modelling_labels_some_tokens_and_ignores_the_rest() -> None:
    labels = batch_of(task=Task.MASKED_LM, batch_size=64, seq_length=20)["labels"]
    share = float((labels != IGNORED).float().mean())
    assert 0.1 < share < 0.2
    assert int(labels[labels != IGNORED].min()) >= 0


def test_one_label_is_a_number_to_predict() -> None:
    labels = batch_of(task=Task.SEQUENCE_CLASSIFICATION, num_labels=1)["labels"]
    assert (labels.shape, labels.dtype) == ((ROWS,), torch.float32)


def test_a_batch_is_rows_by_tokens_of_64_bit_integers() -> None:
    batch = batch_of()
    assert batch.keys() == {"input_ids", "attention_mask", "token_type_ids"}
    assert {(value.shape, value.dtype) for value in batch.values()} == {((ROWS, LENGTH), torch.long)}


def test_multiple_choice_repeats_the_text_for_each_choice() -> None:
    batch = batch_of(task=Task.MULTIPLE_CHOICE)
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (ROWS, LABELS, LENGTH)


def test_token_types_only_for_models_that_have_them() -> None:
    assert "token_type_ids" in batch_of("bert")
    assert "token_type_ids" not in batch_of("roberta", types=1)  # accepts them, and has but one
    assert "token_type_ids" not in batch_of("distilbert")


def test_without_padding_every_token_counts() -> None:
    assert bool(batch_of(padded=False)["attention_mask"].all())


@pytest.mark.parametrize("seed", range(5))
def test_in_a_padded_batch_one_row_is_full_and_the_others_are_shorter_but_not_by_more_than_half(seed: int) -> None:
    batch = batch_of(padded=True, batch_size=8, seed=seed)
    lengths = batch["attention_mask"].sum(-1).tolist()
    assert lengths[0] == LENGTH
    assert all(LENGTH // 2 <= length < LENGTH for length in lengths[1:])
    assert torch.equal(batch["input_ids"] == 1, batch["attention_mask"] == 0)  # the padding token, there alone


def test_a_single_padded_row_is_one_token_short() -> None:
    assert int(batch_of(padded=True, batch_size=1)["attention_mask"].sum()) == LENGTH - 1


def test_a_seed_makes_one_batch() -> None:
    first, again, other = batch_of(seed=1), batch_of(seed=1), batch_of(seed=2)
    assert torch.equal(first["input_ids"], again["input_ids"])
    assert not torch.equal(first["input_ids"], other["input_ids"])
