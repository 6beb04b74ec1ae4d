"""LoRA, checkpointing and frozen parameters: what is trained, and what is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from memdoctor.errors import InputError, MeasureError
from memdoctor.probes.notes import notes_of
from memdoctor.probes.simulated.recording import record
from memdoctor.records import Examination, Precision, Task, Workload

F32 = 4
WIDTH, INNER, LAYERS, ROWS, LENGTH = 64, 256, 2, 2, 32
STATE = ROWS * LENGTH * WIDTH * F32


def held(run: Any, category: str, phase: str = "optimizer", step: int = 2) -> int:
    nbytes: int = run.held(run.end(phase, step=step))[category]
    return nbytes


@pytest.fixture(scope="module")
def lora() -> None:
    pytest.importorskip("peft")


@pytest.mark.usefixtures("lora")
@pytest.mark.parametrize(
    ("settings", "trained"),
    [
        # peft adapts query and value of BERT where nothing is said, and trains the new head beside them.
        ({}, LAYERS * 2 * 2 * (4 * WIDTH) + 2 * WIDTH + 2),
        ({"lora_target_modules": ("query",)}, LAYERS * 2 * (4 * WIDTH) + 2 * WIDTH + 2),
        ({"lora_target_modules": ("query", "intermediate.dense")}, LAYERS * 4 * (3 * WIDTH + INNER) + 2 * WIDTH + 2),
        ({"task": Task.MASKED_LM}, LAYERS * 2 * 2 * (4 * WIDTH)),  # a head that comes with the checkpoint
        ({"task": Task.CAUSAL_LM}, LAYERS * 2 * 2 * (4 * WIDTH)),
        ({"task": Task.NEXT_SENTENCE}, LAYERS * 2 * 2 * (4 * WIDTH)),
        ({"task": Task.MULTIPLE_CHOICE}, LAYERS * 2 * 2 * (4 * WIDTH) + WIDTH + 1),
    ],
)
def test_lora_keeps_gradients_and_state_of_the_adapters_and_the_new_head_only(
    probed: Callable[..., Any], small_bert: Callable[..., Any], settings: dict[str, Any], trained: int
) -> None:
    run = probed(small_bert(), lora_rank=4, optimizer="adamw_torch", **settings)
    assert held(run, "gradients") == trained * F32
    assert held(run, "optimizer_state") == 2 * trained * F32


@pytest.mark.usefixtures("lora")
def test_what_lora_trains_is_noted(probe: Callable[..., Examination], small_bert: Callable[..., Any]) -> None:
    notes = probe(small_bert(), lora_rank=4, steps=1).provenance.notes
    assert len(notes) == 1
    assert notes[0].startswith("LoRA trains 2,178 of ")


@pytest.mark.usefixtures("lora")
def test_lora_with_modules_that_are_not_there_names_those_that_are(
    probe: Callable[..., Examination], small_bert: Callable[..., Any]
) -> None:
    with pytest.raises(InputError, match="LoRA finds nothing to adapt") as refused:
        probe(small_bert(), lora_rank=4, lora_target_modules=("q_proj",), steps=1)
    assert "query" in refused.value.hint


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_every_other_layer_keeps_all_of_the_others(
    probed: Callable[..., Any], small_bert: Callable[..., Any], use_reentrant: bool
) -> None:
    def kept(**settings: Any) -> int:
        run = probed(small_bert(num_hidden_layers=4), steps=1, **settings)
        nbytes: int = run.held(run.end("forward"))["activations"]
        return nbytes

    none = kept()
    every = kept(gradient_checkpointing=True, use_reentrant=use_reentrant)
    other = kept(gradient_checkpointing=True, use_reentrant=use_reentrant, every_n_layers=2)
    assert none - every == 2 * (none - other)  # two of four layers, and four of four
    assert (
        kept(gradient_checkpointing=True, use_reentrant=use_reentrant, every_n_layers=9) == none - (none - every) // 4
    )


def test_a_frozen_encoder_keeps_nothing_for_backward(
    probed: Callable[..., Any], small_bert: Callable[..., Any]
) -> None:
    run = probed(small_bert(), freeze=("bert.*",), steps=1)
    # The pooled state through dropout, for the classifier's weight: dropout needs no gradient, and keeps no mask.
    pooled, log_softmax, divided = ROWS * WIDTH * F32, ROWS * 2 * F32, 4
    assert run.held(run.end("forward"))["activations"] == pooled + log_softmax + divided
    assert held(run, "gradients", "backward", step=1) == (2 * WIDTH + 2) * F32


def test_frozen_embeddings_are_trained_behind_with_reentrant_checkpoints_too(
    probe: Callable[..., Examination], small_bert: Callable[..., Any]
) -> None:
    """transformers marks the embeddings' output as needing a gradient, so that the layers behind are not cut off."""
    settings = {"freeze": ("*embeddings*",), "gradient_checkpointing": True, "steps": 1}
    for use_reentrant in (False, True):
        assert probe(small_bert(), use_reentrant=use_reentrant, **settings).provenance.notes == ()


def test_tensors_that_get_no_gradient_are_noted(
    probe: Callable[..., Examination], small_bert: Callable[..., Any]
) -> None:
    notes = probe(small_bert(), task=Task.BASE, steps=1).provenance.notes
    assert notes == ("2 of 39 trained tensors get no gradient and are not trained, first pooler.dense.weight",)


def test_a_loss_that_rests_on_nothing_trained_is_refused(
    probe: Callable[..., Examination], small_bert: Callable[..., Any]
) -> None:
    trained_beside = [f"encoder.layer.{number}.*" for number in range(LAYERS)]
    with pytest.raises(MeasureError, match="trains nothing"):
        probe(small_bert(), task=Task.BASE, freeze=("embeddings.*", *trained_beside), steps=1)


@pytest.mark.parametrize(
    ("capability", "settings", "note"),
    [
        ("7.5", {"precision": Precision.BF16}, "no bf16 arithmetic"),
        ("6.1", {"precision": Precision.FP16}, "no tensor cores"),
        ("5.2", {"precision": Precision.FP16}, "no fp16 arithmetic"),
        ("7.5", {"precision": Precision.FP16}, None),
        ("8.0", {"precision": Precision.BF16}, None),
        ("6.1", {}, None),
    ],
)
def test_a_precision_that_the_card_does_not_have_is_said(
    probe: Callable[..., Examination],
    small_bert: Callable[..., Any],
    capability: str,
    settings: dict[str, Any],
    note: str | None,
) -> None:
    notes = probe(small_bert(num_hidden_layers=1), capability=capability, steps=1, **settings).provenance.notes
    assert [note in text for text in notes] == ([] if note is None else [True])


def test_what_reentrant_checkpointing_cuts_off_is_told(make_card: Callable[..., Any]) -> None:
    """With frozen embeddings nothing that enters a checkpoint needs a gradient, so what is inside gets none."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layer, self.head = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 2)
            self.words.requires_grad_(False)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            hidden = checkpoint(self.layer, self.words(ids), use_reentrant=True)
            return self.head(hidden).sum()

    def trained(workload: Workload) -> tuple[str, ...]:
        with FakeTensorMode() as fake:
            model = Encoder()
        batch = {"ids": torch.zeros(2, 3, dtype=torch.long)}
        recording = record(workload, make_card(), model, fake, lambda workload, number: batch, 1)
        return notes_of(workload, make_card(), model, recording.without_gradient)

    plain = Workload(model="toy", optimizer="sgd")
    told = "2 of 4 trained tensors get no gradient and are not trained, first layer.weight"
    assert trained(plain) == (told,)
    asked = replace(plain, gradient_checkpointing=True, use_reentrant=True)
    assert trained(asked) == (
        f"reentrant checkpointing cuts off what lies before the first input that requires a gradient: {told}",
    )
