"""Synthetic batches have the shapes, masks and labels that a data collator would make."""

from __future__ import annotations

from collections.abc import Mapping
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


def batch_of(
    model_type: str = "bert", seed: int = 0, types: int = 2, facts: Mapping[str, Any] | None = None, **settings: Any
) -> dict[str, torch.Tensor]:
    config = transformers.AutoConfig.for_model(
        model_type, **{**SIZES, "pad_token_id": 1, "type_vocab_size": types, **(facts or {})}
    )
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
        (Task.CAUSAL_LM, {"labels": ((ROWS, LENGTH), 0, VOCABULARY)}),
        (Task.SEQ2SEQ_LM, {"labels": ((ROWS, LENGTH), 0, VOCABULARY)}),
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
    assert "token_type_ids" in batch_of("deberta-v2", types=0)  # its tokenizer makes them, and the model ignores them


def test_no_mask_for_a_model_that_has_none() -> None:
    assert batch_of("fnet").keys() == {"input_ids", "token_type_ids"}


def test_boxes_for_a_model_that_reads_pages() -> None:
    assert batch_of("layoutlm")["bbox"].shape == (ROWS, LENGTH, 4)


T5 = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}


def test_a_decoder_gets_tokens_of_its_own_where_the_model_does_not_make_them() -> None:
    assert batch_of("t5", facts=T5)["decoder_input_ids"].shape == (ROWS, LENGTH)
    assert "decoder_input_ids" not in batch_of("t5", facts=T5, task=Task.SEQ2SEQ_LM)


# Special tokens, where config.json names them: Longformer and the BART kind look for them.

SPECIAL = {"bos_token_id": 0, "eos_token_id": 2}


@pytest.mark.parametrize("padded", [False, True])
def test_a_row_starts_and_ends_with_the_special_tokens_and_has_no_others(padded: bool) -> None:
    batch = batch_of("roberta", facts=SPECIAL, padded=padded)
    ids, lengths = batch["input_ids"], batch["attention_mask"].sum(-1)
    assert ids[:, 0].tolist() == [0] * ROWS
    assert ids.gather(1, lengths[:, None] - 1).flatten().tolist() == [2] * ROWS
    assert (ids == 2).sum(-1).tolist() == [1] * ROWS


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("length", [8, 12, 20])
@pytest.mark.parametrize("task", [Task.QUESTION_ANSWERING, Task.MULTIPLE_CHOICE])
def test_two_texts_have_three_separators_of_which_two_are_together(task: Task, length: int, padded: bool) -> None:
    ids = batch_of("roberta", facts=SPECIAL, task=task, seq_length=length, padded=padded)["input_ids"]
    rows = ids.reshape(-1, length)
    assert (rows == 2).sum(-1).tolist() == [3] * len(rows)
    places = (rows == 2).nonzero()[:, 1].view(-1, 3)
    assert bool((places[:, 1] == places[:, 0] + 1).all())
    if not padded:
        assert places[0, 0] == (length // 4 if task is Task.QUESTION_ANSWERING else length - 2 - max(2, length // 4))


def test_special_tokens_at_the_end_of_the_vocabulary_are_not_drawn() -> None:
    ids = batch_of("roberta", facts={"eos_token_id": VOCABULARY - 1}, batch_size=100, seq_length=20)["input_ids"]
    assert int((ids == VOCABULARY - 1).sum()) == 100  # the last of each row


def test_several_classes_at_once_are_numbers() -> None:
    labels = batch_of(task=Task.SEQUENCE_CLASSIFICATION, facts={"problem_type": "multi_label_classification"})["labels"]
    assert (labels.shape, labels.dtype) == ((ROWS, LABELS), torch.float32)


def test_next_token_labels_are_the_tokens_and_padding_has_none() -> None:
    batch = batch_of(task=Task.CAUSAL_LM, padded=True)
    assert torch.equal(batch["labels"] == IGNORED, batch["attention_mask"] == 0)
    assert torch.equal(batch["labels"].clamp(min=1), batch["input_ids"])


@pytest.mark.parametrize("task", [Task.TOKEN_CLASSIFICATION, Task.MASKED_LM, Task.CAUSAL_LM, Task.MULTIPLE_CHOICE])
def test_a_batch_too_large_to_draw_takes_the_memory_of_a_row(task: Task) -> None:
    rows, length = 1 << 15, 512
    batch = batch_of(task=task, batch_size=rows, seq_length=length, num_labels=2)
    assert batch["input_ids"].numel() >= 1 << 24
    assert sum(value.untyped_storage().nbytes() for value in batch.values()) <= 2 * 8 * length + 8 * rows + 16


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
