"""Patches held to the classes that are installed: they have the keywords, the names and the methods, and take them."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.training_args import OptimizerNames

from memdoctor.codec import from_json
from memdoctor.patches import patch_of
from memdoctor.patches.model import AUTO_CLASSES, PEFT_TASKS
from memdoctor.patches.optimizers import CLASSES, DEEPSPEED
from memdoctor.patches.trainer import KEYWORDS
from memdoctor.records import Task, Workload

Case = tuple[dict[str, Any], dict[str, Any]]
PYTHON = ("model", "data", "torch")


def patch(case: Case) -> dict[str, str]:
    """By the names of the installed transformers."""
    settings, change = case
    before = from_json(Workload, {"model": "bert-base-uncased", **settings})
    return dict(patch_of(before, change, transformers.__version__))


def arguments(case: Case) -> dict[str, Any]:
    """The keywords of the trainer's language, as Python reads them."""
    keywords: dict[str, Any] = eval(f"dict({patch(case).get('trainer', '')})", {})  # noqa: S307 - our own lines
    return keywords


def test_the_trainer_has_every_keyword_and_takes_it(case: Case, tmp_path: Path) -> None:
    keywords = arguments(case)
    assert set(keywords) <= {item.name for item in fields(transformers.TrainingArguments)}
    if keywords.get("eval_strategy", "no") != "no":
        keywords["do_eval"] = True
    made = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **keywords)
    for name, value in keywords.items():
        if name != "optim_target_modules":
            assert getattr(made, name) == value


def test_the_trainer_has_every_keyword_of_the_table() -> None:
    assert set(KEYWORDS.values()) <= {item.name for item in fields(transformers.TrainingArguments)}


def test_python_is_python(case: Case) -> None:
    for language in PYTHON:
        compile(patch(case).get(language, ""), language, "exec")


def test_optimizers_are_the_trainers_and_their_libraries() -> None:
    assert set(CLASSES) | set(DEEPSPEED) <= {name.value for name in OptimizerNames}
    for module, kind, _ in CLASSES.values():
        pytest.importorskip(module)
        path, _, name = kind.rpartition(".")
        assert isinstance(getattr(import_module(path), name), type)


@pytest.mark.parametrize("name", [name for name, (module, _, _) in CLASSES.items() if module != "bitsandbytes"])
def test_an_optimizer_is_made_and_steps(name: str) -> None:
    model = torch.nn.Linear(3, 2)
    before = model.weight.detach().clone()
    other = "sgd" if name != "sgd" else "adamw_torch"
    names = run(patch(({"optimizer": other}, {"optimizer": name}))["torch"], model=model)
    model(torch.ones(1, 3)).sum().backward()
    names["optimizer"].step()
    assert not torch.equal(model.weight, before)


def test_arguments_of_an_optimizer_are_its_keywords() -> None:
    change = {"optimizer": "sgd", "optim_args": "momentum=0.9, nesterov=true"}
    group = run(patch(({}, change))["torch"], model=torch.nn.Linear(3, 2))["optimizer"].param_groups[0]
    assert (group["momentum"], group["nesterov"], group["lr"]) == (0.9, True, 5e-5)
    assert "torch" not in patch(({}, {"optimizer": "sgd", "optim_args": "momentum=much"}))


def test_every_head_has_its_class_and_pefts_name() -> None:
    peft = pytest.importorskip("peft")
    assert set(AUTO_CLASSES) == set(Task)
    assert all(hasattr(transformers, name) for name in AUTO_CLASSES.values())
    assert set(PEFT_TASKS.values()) <= {kind.value for kind in peft.TaskType}


def tiny() -> Any:
    """A BERT of two layers without weights from anywhere."""
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    return transformers.BertForSequenceClassification(config)


def run(text: str, **names: Any) -> dict[str, Any]:
    """Execute a patch where these names mean something; what it has made of them."""
    space = dict(names)
    exec(text, space)  # noqa: S102 - our own lines
    return space


def test_freezing_freezes_what_matches_and_thaws_nothing() -> None:
    model = tiny()
    model.classifier.bias.requires_grad_(False)
    run(patch(({}, {"freeze": ["*embeddings*", "bert.encoder.layer.0.*"]}))["model"], model=model)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    names = [name for name, _ in model.named_parameters()]
    matched = {name for name in names if "embeddings" in name or name.startswith("bert.encoder.layer.0.")}
    assert matched
    assert frozen == {*matched, "classifier.bias"}
    run(patch(({"freeze": ["*"]}, {"freeze": []}))["model"], model=model)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_lora_trains_adapters_and_the_head() -> None:
    pytest.importorskip("peft")
    change = {"lora_rank": 4, "lora_dropout": 0.1, "lora_target_modules": ["query", "value"]}
    model = run(patch(({}, change))["model"], model=tiny())["model"]
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    # Two matrices for each of query and value in both layers; the head's weight and bias.
    assert sum("lora_" in name for name in trained) == 2 * 2 * 2
    assert sum("classifier" in name for name in trained) == 2


@pytest.mark.parametrize("change", [{}, {"every_n_layers": 2}, {"use_reentrant": True}], ids=str)
def test_a_model_checkpoints_as_it_is_told(change: dict[str, Any]) -> None:
    texts = patch(({}, {"gradient_checkpointing": True, **change}))
    if "torch" not in texts:
        pytest.skip("this transformers knows no every_n_layers")
    model = tiny()
    run(texts["torch"], model=model)
    assert model.is_gradient_checkpointing
    run(patch(({"gradient_checkpointing": True}, {"gradient_checkpointing": False}))["torch"], model=model)
    assert not model.is_gradient_checkpointing
