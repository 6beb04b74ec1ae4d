"""The relatives of BERT, small: each is trained, adds up, and has the parameters that transformers gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto import modeling_auto

from memdoctor.analysis import breakdown_of, peak_of
from memdoctor.records import Category, Completed, Examination, Precision, RanOut, Task

F32 = 4
SIZES = {
    "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "max_position_embeddings": 130,
}  # fmt: skip
ROBERTA = {**SIZES, "pad_token_id": 1}

FAMILIES: dict[str, Mapping[str, Any]] = {
    "bert": SIZES,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": {
        "vocab_size": 1000, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "max_position_embeddings": 130,
    },
    "albert": {**SIZES, "embedding_size": 32},
    "electra": {**SIZES, "embedding_size": 32},
    "mpnet": ROBERTA,
    "deberta": {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": {**SIZES, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16},
    "modernbert": {
        **SIZES, "pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2,
        "local_attention": 16,
    },
    "mobilebert": {**SIZES, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "ernie": SIZES,
    "rembert": SIZES,
    "convbert": SIZES,
    "squeezebert": {**SIZES, "embedding_size": 64},
    "nystromformer": SIZES,
    "fnet": {**SIZES, "use_tpu_fourier_optimizations": False},
    "big_bird": {**SIZES, "block_size": 4, "num_random_blocks": 1},
    "funnel": {"vocab_size": 1000, "d_model": 64, "n_head": 4, "d_head": 16, "d_inner": 128, "block_sizes": [1, 1]},
    "xlnet": {"vocab_size": 1000, "d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128},
    "gpt2": {
        "vocab_size": 1000, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 130, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2,
    },
    "llama": SIZES | {"pad_token_id": 0},
}  # fmt: skip

AUTO = {
    Task.SEQUENCE_CLASSIFICATION: modeling_auto.AutoModelForSequenceClassification,
    Task.TOKEN_CLASSIFICATION: modeling_auto.AutoModelForTokenClassification,
    Task.QUESTION_ANSWERING: modeling_auto.AutoModelForQuestionAnswering,
    Task.MULTIPLE_CHOICE: modeling_auto.AutoModelForMultipleChoice,
    Task.MASKED_LM: modeling_auto.AutoModelForMaskedLM,
    Task.NEXT_SENTENCE: modeling_auto.AutoModelForNextSentencePrediction,
    Task.BASE: modeling_auto.AutoModel,
}


def parameters_in_transformers(model_type: str, facts: Mapping[str, Any], task: Task, labels: int) -> int:
    """The parameters of the real class with this head, tied ones once, counted without memory for any of them."""
    config = transformers.AutoConfig.for_model(model_type, **facts)
    config.num_labels = labels
    with torch.device("meta"):
        model = AUTO[task].from_config(config)
    model.tie_weights()
    return sum(parameter.numel() for parameter in model.parameters())


def assert_adds_up(examination: Examination) -> None:
    """The parts sum to what PyTorch's counters would say, and with the rest to the card."""
    parts, peak = breakdown_of(examination), peak_of(examination)
    assert parts.allocated == peak.allocated_bytes == max(examination.timeline.in_use())
    assert parts.reserved == peak.reserved_bytes == max(examination.timeline.reserved())
    assert peak.allocated_bytes <= peak.max_memory_allocated_bytes <= peak.reserved_bytes
    assert sum(nbytes for _, nbytes in parts.items()) == examination.device.total_bytes
    assert all(
        allocated <= reserved
        for allocated, reserved in zip(
            examination.timeline.memory_allocated(), examination.timeline.reserved(), strict=True
        )
    )


def parameters_of(examination: Examination) -> int:
    blocks = examination.timeline.blocks
    return sum(block.bytes for block in blocks if block.category is Category.PARAMETERS)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_each_family_trains_and_adds_up(probe: Callable[..., Examination], model_type: str) -> None:
    facts = FAMILIES[model_type]
    examination = probe({"model_type": model_type, **facts}, steps=1)
    assert isinstance(examination.outcome, Completed)
    assert_adds_up(examination)
    expected = parameters_in_transformers(model_type, facts, Task.SEQUENCE_CLASSIFICATION, labels=2)
    assert parameters_of(examination) == expected * F32


@pytest.mark.parametrize(
    "model_type",
    ["roberta", "distilbert", "albert", "electra", "mpnet", "deberta-v2", "modernbert", "mobilebert", "big_bird"],
)
def test_each_family_takes_a_batch_with_padding(probe: Callable[..., Examination], model_type: str) -> None:
    examination = probe({"model_type": model_type, **FAMILIES[model_type]}, padded=True, steps=1)
    assert isinstance(examination.outcome, Completed)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
@pytest.mark.parametrize("task", Task)
def test_each_head_of_bert_trains_and_adds_up(
    probe: Callable[..., Examination], task: Task, precision: Precision, padded: bool
) -> None:
    labels = 3
    facts = {**SIZES, "num_hidden_layers": 1}
    settings = {"task": task, "precision": precision, "padded": padded, "num_labels": labels}
    examination = probe({"model_type": "bert", **facts}, steps=1, **settings)
    assert isinstance(examination.outcome, Completed)
    assert_adds_up(examination)
    expected = parameters_in_transformers("bert", facts, task, _labels_of_head(task, labels))
    assert parameters_of(examination) == expected * F32


def _labels_of_head(task: Task, labels: int) -> int:
    """Only classification has as many outputs as there are labels."""
    return labels if task in (Task.SEQUENCE_CLASSIFICATION, Task.TOKEN_CLASSIFICATION) else 2


def test_one_label_is_regression(probe: Callable[..., Examination], small_bert: Callable[..., Any]) -> None:
    examination = probe(small_bert(num_hidden_layers=1), num_labels=1, steps=1)
    labels = [block for block in examination.timeline.blocks if block.shape == (2,) and block.dtype == "float32"]
    assert any(block.category is Category.INPUTS_AND_BUFFERS for block in labels)
    assert_adds_up(examination)


def test_a_batch_that_does_not_fit_runs_out_and_still_adds_up(
    probe: Callable[..., Examination], small_bert: Callable[..., Any]
) -> None:
    config = small_bert(num_hidden_layers=1)
    roomy = probe(config, steps=1)
    tight = probe(config, steps=1, total_bytes=20 << 20)
    assert isinstance(roomy.outcome, Completed)
    assert isinstance(tight.outcome, RanOut)
    # The first cuBLAS workspace would fit into what is free, but comes in a segment of 20 MiB.
    assert (tight.outcome.requested_bytes, tight.outcome.free_bytes) == (8_519_680, 18 << 20)
    assert tight.timeline.in_use() == roomy.timeline.in_use()  # it goes on, to show what it would have needed
    assert breakdown_of(tight).free < 0
    assert_adds_up(tight)
