"""Optimizers by the Trainer's names, over the Trainer's two groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers.trainer import Trainer

from memdoctor.errors import InputError
from memdoctor.probes.optimizers import OPTIMIZERS, build_optimizer

SIZES = {
    "vocab_size": 100, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "max_position_embeddings": 20,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": SIZES,
    "roberta": SIZES,
    "albert": {**SIZES, "embedding_size": 8},
    "distilbert": {"vocab_size": 100, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8},
    "deberta-v2": SIZES,
    "mobilebert": {**SIZES, "intra_bottleneck_size": 8, "true_hidden_size": 8},  # norms that are no LayerNorm
    "modernbert": {**SIZES, "pad_token_id": 0},
    "xlnet": {"vocab_size": 100, "d_model": 8, "n_layer": 1, "n_head": 2, "d_inner": 8},
}


def build(model_type: str) -> Any:
    config = transformers.AutoConfig.for_model(model_type, **FAMILIES[model_type])
    with torch.device("meta"):
        return transformers.AutoModelForSequenceClassification.from_config(config)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_the_groups_are_those_of_the_trainer_in_its_order(model_type: str) -> None:
    model = build(model_type)
    decayed = set(Trainer.get_decay_parameter_names(None, model))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [[names[id(p)] for p in group["params"]] for group in build_optimizer("sgd", model).param_groups]
    everything = [name for name, _ in model.named_parameters()]
    assert groups[0] == [name for name in everything if name in decayed]
    assert groups[1] == [name for name in everything if name not in decayed]


def test_frozen_parameters_are_left_out() -> None:
    model = build("bert")
    model.bert.requires_grad_(False)
    trained = [p for group in build_optimizer("adamw_torch", model).param_groups for p in group["params"]]
    assert {id(p) for p in trained} == {id(p) for p in model.classifier.parameters()}


def test_a_group_without_parameters_is_left_out() -> None:
    assert len(build_optimizer("sgd", torch.nn.Linear(2, 2, bias=False)).param_groups) == 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_name_is_one_of_the_trainers(name: str) -> None:
    assert name in {item.value for item in transformers.training_args.OptimizerNames}
    assert isinstance(build_optimizer(name, torch.nn.Linear(2, 2)), torch.optim.Optimizer)


def test_an_unknown_optimizer_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match="'adam' cannot be probed") as refused:
        build_optimizer("adam", torch.nn.Linear(2, 2))
    assert all(name in refused.value.hint for name in OPTIMIZERS)
