"""Models are built as the workload says, and what cannot be built is refused with a way out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from memdoctor.errors import InputError
from memdoctor.probes.adapting import adapt
from memdoctor.probes.models import attention_of, build_config, build_model
from memdoctor.probes.moving import move
from memdoctor.records import Attention, Task, Workload

BERT = {
    "model_type": "bert", "vocab_size": 100, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 8, "max_position_embeddings": 20, "architectures": ["BertForMaskedLM"],
}  # fmt: skip


def build(config: dict[str, Any] | None = None, **settings: Any) -> Any:
    workload = Workload(model="small", **settings)
    with torch.device("meta"):
        return adapt(build_model(config or BERT, workload), workload)


def test_the_head_is_the_tasks_not_the_checkpoints() -> None:
    assert type(build(task=Task.TOKEN_CLASSIFICATION)).__name__ == "BertForTokenClassification"


def test_the_head_has_as_many_outputs_as_there_are_labels() -> None:
    assert build(num_labels=7).classifier.out_features == 7


def test_weights_are_fp32_and_all_are_trained() -> None:
    parameters = list(build().parameters())
    assert {parameter.dtype for parameter in parameters} == {torch.float32}
    assert all(parameter.requires_grad for parameter in parameters)


@pytest.mark.parametrize("asked", [None, Attention.SDPA, Attention.EAGER])
def test_attention_is_what_was_asked_for_or_the_best_there_is(asked: Attention | None) -> None:
    assert attention_of(build(attention=asked)) is (asked or Attention.SDPA)


def test_attention_that_a_model_does_not_have_is_refused() -> None:
    mpnet = {**BERT, "model_type": "mpnet"}
    assert attention_of(build(mpnet)) is Attention.EAGER
    with pytest.raises(InputError, match="no sdpa attention") as refused:
        build(mpnet, attention=Attention.SDPA)
    assert "eager" in refused.value.hint


def test_an_unknown_model_type_is_refused() -> None:
    with pytest.raises(InputError, match=r"'bertt'.*unknown") as refused:
        build_config({**BERT, "model_type": "bertt"}, Workload(model="small"))
    assert "transformers" in refused.value.hint


def test_code_that_is_in_a_models_own_repository_is_refused_by_name() -> None:
    remote = {"model_type": "new", "auto_map": {"AutoModel": "modeling.NewModel"}}
    with pytest.raises(InputError, match="'new'") as refused:
        build_config(remote, Workload(model="small"))
    assert "trust_remote_code" in refused.value.why


@pytest.mark.parametrize(
    ("eos", "pad"),
    [
        ({"eos_token_id": 7}, 7),
        ({"eos_token_id": [7, 8]}, 7),
        ({"eos_token_id": 100_000}, 0),
        ({"eos_token_id": None}, 0),
    ],
    ids=str,
)
def test_a_decoder_without_padding_pads_with_its_end_of_text(eos: dict[str, Any], pad: int) -> None:
    llama = {**BERT, "model_type": "llama", **eos}
    assert build_config(llama, Workload(model="small")).pad_token_id == pad
    assert build_config({**llama, "pad_token_id": 3}, Workload(model="small")).pad_token_id == 3


def test_t5_starts_decoding_with_padding() -> None:
    t5 = {"model_type": "t5", "vocab_size": 100, "pad_token_id": 5}
    assert build_config(t5, Workload(model="small")).decoder_start_token_id == 5
    assert build_config({**t5, "decoder_start_token_id": 6}, Workload(model="small")).decoder_start_token_id == 6


def test_of_several_classes_for_a_head_the_checkpoint_chooses() -> None:
    funnel = {
        "model_type": "funnel", "vocab_size": 100, "d_model": 8, "n_head": 2, "d_head": 4, "d_inner": 8,
        "block_sizes": [1, 1],
    }  # fmt: skip
    assert type(build(funnel, task=Task.BASE)).__name__ == "FunnelModel"
    chosen = build({**funnel, "architectures": ["FunnelBaseModel"]}, task=Task.BASE)
    assert type(chosen).__name__ == "FunnelBaseModel"


def test_a_head_that_a_model_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(InputError, match="no next-sentence head") as refused:
        build({**BERT, "model_type": "roberta"}, task=Task.NEXT_SENTENCE)
    assert "masked-lm" in refused.value.hint
    assert "next-sentence" not in refused.value.hint


def test_checkpointing_reaches_every_layer_with_its_kind() -> None:
    for use_reentrant in (False, True):
        model = build(gradient_checkpointing=True, use_reentrant=use_reentrant)
        layers = model.bert.encoder.layer
        assert all(layer.gradient_checkpointing for layer in layers)
        keywords = layers[0]._gradient_checkpointing_func.keywords
        assert keywords["use_reentrant"] is use_reentrant


def test_frozen_patterns_are_shell_patterns_over_parameter_names() -> None:
    model = build(freeze=("bert.embeddings.*", "*.layer.0.*"))
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert frozen
    assert all(name.startswith(("bert.embeddings.", "bert.encoder.layer.0.")) for name in frozen)
    assert all(not parameter.requires_grad for parameter in model.bert.embeddings.parameters())
    assert all(not parameter.requires_grad for parameter in model.bert.encoder.layer[0].parameters())


def test_a_pattern_that_matches_nothing_is_refused_with_an_example() -> None:
    with pytest.raises(InputError, match="matches no parameter") as refused:
        build(freeze=("encoder.layer.0.*",))
    assert "bert.embeddings" in refused.value.hint


def test_nothing_left_to_train_is_refused() -> None:
    with pytest.raises(InputError, match="nothing is left to train"):
        build(freeze=("*",))


def test_moving_keeps_ties_order_and_gradients() -> None:
    model = build(task=Task.MASKED_LM, freeze=("*LayerNorm*",))
    names = [name for name, _ in model.named_parameters()]
    trained = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    move(model, torch.device("meta"))
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert [name for name, _ in model.named_parameters()] == names
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == trained
    assert all(isinstance(parameter, nn.Parameter) for parameter in model.parameters())


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_size": "x"},
        {"hidden_size": -4},
        {"hidden_size": 100, "num_attention_heads": 7},
        {"vocab_size": None},
    ],
    ids=str,
)
def test_a_config_that_no_model_can_be_built_from_is_an_input_error(config: dict[str, Any]) -> None:
    workload = Workload(model="mine", batch_size=1, seq_length=8)
    with pytest.raises(InputError, match="mine cannot be built from its config"):
        build_model({"model_type": "bert", **config}, workload)
