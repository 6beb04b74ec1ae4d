"""The relatives of BERT, small: each is trained, adds up, and has the parameters that transformers gives it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from memdoctor.analysis import breakdown_of, peak_of
from memdoctor.catalogue import models
from memdoctor.errors import MeasureError
from memdoctor.records import Category, Completed, Examination, Precision, RanOut, Task

F32 = 4
LEAST = {"vocab_size": 1000}
SIZES = {
    **LEAST, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 128,
    "max_position_embeddings": 130,
}  # fmt: skip
TABLE = tomllib.loads((Path(__file__).parents[1] / "families.toml").read_text())
OTHER_NAMES = {"d_model", "dim", "emb_dim", "n_embd"}  # of the hidden size: all sizes are in the table then
FAMILIES: dict[str, Mapping[str, Any]] = {
    name: {**(LEAST if OTHER_NAMES & facts.keys() else SIZES), **facts}
    for name, facts in TABLE.items()
    if name in CONFIG_MAPPING  # a release of transformers may be too old for the newest
}

AUTO = {
    Task.SEQUENCE_CLASSIFICATION: modeling_auto.AutoModelForSequenceClassification,
    Task.TOKEN_CLASSIFICATION: modeling_auto.AutoModelForTokenClassification,
    Task.QUESTION_ANSWERING: modeling_auto.AutoModelForQuestionAnswering,
    Task.MULTIPLE_CHOICE: modeling_auto.AutoModelForMultipleChoice,
    Task.MASKED_LM: modeling_auto.AutoModelForMaskedLM,
    Task.CAUSAL_LM: modeling_auto.AutoModelForCausalLM,
    Task.SEQ2SEQ_LM: modeling_auto.AutoModelForSeq2SeqLM,
    Task.NEXT_SENTENCE: modeling_auto.AutoModelForNextSentencePrediction,
    Task.BASE: modeling_auto.AutoModel,
}
ALL_HEADS = {
    name: [task for task, auto in AUTO.items() if CONFIG_MAPPING[name] in auto._model_mapping] for name in FAMILIES
}
HEADS = [
    (name, task)
    for name, tasks in ALL_HEADS.items()
    for task in tasks
    # Of the encoders that transformers also makes decoders of, BERT stands for all.
    if task is not Task.CAUSAL_LM or Task.MASKED_LM not in tasks or name == "bert"
]
NO_FP16 = {
    "fnet": "its Fourier transform refuses 16 bits, as cuFFT does unless all sizes are powers of two",
    "yoso": "its backward multiplies fp16 by fp32, on any device",
}


def parameters_in_transformers(model_type: str, facts: Mapping[str, Any], task: Task, labels: int) -> int:
    """The parameters of the real class with this head, tied ones once, counted without memory for any of them."""
    config = transformers.AutoConfig.for_model(model_type, **facts)
    config.num_labels = labels
    config.architectures = []  # Funnel has two base classes
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


def test_every_family_of_the_catalogue_is_tried() -> None:
    assert {entry.model_type for entry in models()} <= TABLE.keys()
    assert {name for name, _ in HEADS} == FAMILIES.keys()


@pytest.mark.parametrize(("model_type", "task"), HEADS)
def test_each_family_trains_with_each_head_and_adds_up(
    probe: Callable[..., Examination], model_type: str, task: Task
) -> None:
    facts = FAMILIES[model_type]
    examination = probe({"model_type": model_type, **facts}, task=task, steps=1)
    assert isinstance(examination.outcome, Completed)
    assert_adds_up(examination)
    assert parameters_of(examination) == parameters_in_transformers(model_type, facts, task, labels=2) * F32


@pytest.mark.parametrize("model_type", FAMILIES)
def test_each_family_takes_a_batch_with_padding_in_fp16(probe: Callable[..., Examination], model_type: str) -> None:
    precision = Precision.FP32 if model_type in NO_FP16 else Precision.FP16
    config = {"model_type": model_type, **FAMILIES[model_type]}
    examination = probe(config, task=_first_head(model_type), padded=True, precision=precision, steps=1)
    assert isinstance(examination.outcome, Completed)
    assert_adds_up(examination)


def _first_head(model_type: str) -> Task:
    return ALL_HEADS[model_type][0]


def test_what_a_model_decides_by_its_activations_is_refused_at_its_line(probe: Callable[..., Examination]) -> None:
    with pytest.raises(MeasureError, match=r"quant_modules\.py:\d+") as refused:
        probe({"model_type": "ibert", **SIZES, "pad_token_id": 1}, steps=1)
    assert "weights" in refused.value.why


def test_layers_that_are_dropped_at_random_are_refused_at_their_line(probe: Callable[..., Examination]) -> None:
    with pytest.raises(MeasureError, match=r"modeling_bart\.py:\d+") as refused:
        probe({"model_type": "bart", **FAMILIES["bart"], "encoder_layerdrop": 0.5}, steps=1)
    assert "random" in refused.value.why


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
@pytest.mark.parametrize("task", ALL_HEADS["bert"])
def test_each_head_of_bert_trains_and_adds_up(
    probe: Callable[..., Examination], task: Task, precision: Precision, padded: bool
) -> None:
    labels = 3
    facts = SIZES
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
