"""Optimizers by the Trainer's names, over the Trainer's two groups."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
import transformers
from transformers.trainer import Trainer

from memdoctor.errors import InputError
from memdoctor.probes.optimizers import (
    NOT_SIMULATED,
    OPTIMIZERS,
    build_optimizer,
    names,
    state_tensors,
    trainer,
    updates_in_backward,
)
from memdoctor.probes.optimizers.builtin import BUILTIN

# Later releases have the handlers of optimizers in a module of their own, and those of sgd and the like take arguments.
TAKES_OPTIM_ARGS = find_spec("transformers.trainer_optimizer") is not None
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


def layer() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4))


def facts(optimizer: torch.optim.Optimizer) -> tuple[Any, ...]:
    """What makes two optimizers alike: their class, and the settings and sizes of their groups."""
    groups = [
        {**{key: value for key, value in group.items() if key != "params"}, "params": len(group["params"])}
        for group in optimizer.param_groups
    ]
    return type(optimizer), groups


@pytest.mark.parametrize("name", BUILTIN)
def test_optimizers_of_torch_are_those_that_the_trainer_builds(name: str) -> None:
    model = layer()
    assert facts(build_optimizer(name, model)) == facts(trainer.create_optimizer(name, model, "", (), 1))


def test_a_group_without_parameters_stays_as_in_the_trainer() -> None:
    groups = build_optimizer("sgd", torch.nn.Linear(2, 2, bias=False)).param_groups
    assert [len(group["params"]) for group in groups] == [1, 0]


def test_momentum_of_sgd_comes_by_optim_args_alone_if_the_trainer_takes_it() -> None:
    assert build_optimizer("sgd", layer()).param_groups[0]["momentum"] == 0
    group = build_optimizer("sgd", layer(), optim_args="momentum=0.9, unknown=1").param_groups[0]
    assert group["momentum"] == (0.9 if TAKES_OPTIM_ARGS else 0)


@pytest.mark.parametrize("text", ["momentum", "momentum=", "=0.9", "momentum=0.9=1", "momentum:0.9"])
def test_optim_args_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="cannot be read") as refused:
        build_optimizer("sgd", layer(), optim_args=text)
    assert "is not name=value" in refused.value.why


@pytest.mark.skipif(not TAKES_OPTIM_ARGS, reason="this release of transformers passes over them")
@pytest.mark.parametrize(("name", "text"), [("sgd", "momentum=much"), ("rmsprop", "alpha=-1"), ("sgd", "nesterov=1")])
def test_values_that_the_optimizer_does_not_take_are_refused(name: str, text: str) -> None:
    with pytest.raises(InputError, match="refuses these settings"):
        build_optimizer(name, layer(), optim_args=text)


def test_every_name_of_the_trainer_is_known_and_no_other() -> None:
    theirs = {item.value for item in transformers.training_args.OptimizerNames}
    ours = set(OPTIMIZERS) | set(NOT_SIMULATED)
    assert theirs <= ours
    assert ours - theirs <= {"adamw_apex_fused"}  # of earlier releases
    assert not set(OPTIMIZERS) & set(NOT_SIMULATED)


@pytest.mark.parametrize("name", BUILTIN)
def test_an_optimizer_of_torch_needs_nothing_else(name: str) -> None:
    assert isinstance(build_optimizer(name, layer()), torch.optim.Optimizer)


def test_an_unknown_optimizer_is_refused_with_near_names_and_those_that_are_known() -> None:
    with pytest.raises(InputError, match="'adamw' cannot be simulated") as refused:
        build_optimizer("adamw", layer())
    assert refused.value.why == "the Trainer has no optimizer of this name"
    assert refused.value.hint.startswith("--optim with one of: adamw_torch, adamw_torch_fused, adamw_8bit, ")
    assert all(name in str(refused.value) for name in OPTIMIZERS)  # as it is printed: not cut


@pytest.mark.parametrize("name", NOT_SIMULATED)
def test_an_optimizer_that_cannot_be_simulated_says_why(name: str) -> None:
    with pytest.raises(InputError, match=f"'{name}' cannot be simulated") as refused:
        build_optimizer(name, layer())
    assert refused.value.why == NOT_SIMULATED[name]
    assert "adamw_torch_fused" in refused.value.hint


@pytest.mark.parametrize(("found", "why"), [(None, "it is not installed"), ("0.1", "release 0.1 is installed")])
def test_an_absent_or_old_library_is_named_with_its_extra(
    found: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(distribution: str) -> str:
        if found is None:
            raise names.PackageNotFoundError(distribution)
        return found

    monkeypatch.setattr(names, "version", version)
    with pytest.raises(InputError, match=r"'lion_8bit' needs bitsandbytes>=0\.46") as refused:
        build_optimizer("lion_8bit", layer())
    assert refused.value.why == why
    assert refused.value.hint == "pip install 'bitsandbytes>=0.46', which memdoctor's extra [bitsandbytes] asks for"


def test_optimizers_that_update_in_backward() -> None:
    assert {name for name in OPTIMIZERS if updates_in_backward(name)} == {
        "lomo", "adalomo", "galore_adamw_layerwise", "apollo_adamw_layerwise",
    }  # fmt: skip


def test_projections_want_target_modules() -> None:
    pytest.importorskip("galore_torch")
    with pytest.raises(InputError, match="refuses these settings") as refused:
        build_optimizer("galore_adamw", layer())
    assert "optim_target_modules" in refused.value.why


@pytest.mark.parametrize("target", ["all-linear", "all_linear", "0"])
def test_target_modules_are_all_linear_or_parts_of_names(target: str) -> None:
    pytest.importorskip("galore_torch")
    others, targets = build_optimizer(
        "galore_adamw", layer(), optim_args="rank=2", target_modules=(target,)
    ).param_groups
    assert ([p.ndim for p in others["params"]], [p.ndim for p in targets["params"]]) == ([1], [2])
    assert (targets["rank"], "rank" in others) == (2, False)


def test_a_block_size_is_refused_where_the_real_step_stops() -> None:
    pytest.importorskip("torchao")
    with pytest.raises(InputError, match="refuses these settings") as refused:
        build_optimizer("adamw_torch_8bit", layer(), optim_args="block_size=128")
    assert "block_size" in refused.value.why


def test_a_later_model_is_not_taken_for_an_earlier_one() -> None:
    """bitsandbytes notes by ``id``, for the process, which parameters stay in 32 bits."""
    bitsandbytes = pytest.importorskip("bitsandbytes")
    build_optimizer("adamw_8bit", torch.nn.Sequential(torch.nn.Embedding(4, 4)))
    build_optimizer("adamw_8bit", layer())
    assert bitsandbytes.optim.GlobalOptimManager.get_instance().module_weight_config_triple == []


def test_the_state_is_found_wherever_an_optimizer_keeps_it() -> None:
    model = layer()
    optimizer = build_optimizer("adamw_torch", model)
    model(torch.zeros(1, 4)).sum().backward()
    optimizer.step()
    assert sorted(tensor.numel() for tensor in state_tensors(optimizer)) == [1, 1, 4, 4, 16, 16]
