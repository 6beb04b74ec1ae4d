"""What is said in which language, word by word."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from memdoctor.codec import from_json
from memdoctor.patches import LANGUAGES, NOT_PATCHED, patch_of
from memdoctor.records import Workload

NEW, OLD, OLDEST = "5.24.0", "5.17.0", "5.0.0"
MINIMAL = {"batch_size": 2, "gradient_accumulation_steps": 8, "precision": "fp16", "gradient_checkpointing": True}


def workload(**settings: Any) -> Workload:
    """BERT-base, and what is told otherwise."""
    return from_json(Workload, {"model": "bert-base-uncased", **settings})


def patched(change: dict[str, Any], release: str = NEW, **settings: Any) -> dict[str, str]:
    """The patch for a change of a workload with these settings."""
    return dict(patch_of(workload(**settings), change, release))


@pytest.mark.parametrize("name", [item.name for item in fields(Workload)])
def test_every_field_can_be_said_or_has_its_reason(name: str, cases: dict[str, Any]) -> None:
    assert (name in cases) != (name in NOT_PATCHED)
    if name in NOT_PATCHED:
        assert NOT_PATCHED[name]
        return
    settings, change = cases[name]
    assert set(change) == {name}
    assert set(patched(change, **settings)) - {"cli"}


@pytest.mark.parametrize(
    ("name", "value"), [("forward_passes", 2), ("loop", "custom"), ("strategy", "ddp"), ("world_size", 2)]
)
def test_what_cannot_be_pasted_is_said_to_memdoctor_alone(name: str, value: object) -> None:
    assert name in NOT_PATCHED
    assert set(patched({name: value})) == {"cli"}


def test_no_change_is_no_patch() -> None:
    assert patched({}) == {}
    assert patched({"batch_size": 8, "precision": "fp32"}) == {}


def test_languages_come_in_order() -> None:
    change = {**MINIMAL, "seq_length": 128, "attention": "sdpa", "cuda_alloc_conf": "expandable_segments:True"}
    assert tuple(patched(change)) == LANGUAGES


def test_a_value_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        patched({"batch_size": 0})
    with pytest.raises(ValueError, match="batchsize"):
        patched({"batchsize": 1})


@pytest.mark.parametrize(
    ("release", "name"),
    [
        (NEW, "activation_checkpointing"), ("5.23.0", "activation_checkpointing"), ("6.0", "activation_checkpointing"),
        ("5.22.1", "gradient_checkpointing"), (OLD, "gradient_checkpointing"), (OLDEST, "gradient_checkpointing"),
        ("unknown", "gradient_checkpointing"),
    ],
)  # fmt: skip
def test_the_trainer_is_told_by_its_releases_names(release: str, name: str) -> None:
    assert patched(MINIMAL, release)["trainer"].splitlines() == [
        "per_device_train_batch_size=2,",
        "gradient_accumulation_steps=8,",
        "fp16=True,",
        f"{name}=True,",
        f'{name}_kwargs={{"use_reentrant": False}},',
    ]


def test_every_n_layers_is_said_where_the_release_knows_it() -> None:
    change = {"gradient_checkpointing": True, "every_n_layers": 2}
    for release, stem in ((NEW, "activation_checkpointing"), (OLD, "gradient_checkpointing")):
        patch = patched(change, release)
        assert patch["trainer"] == f'{stem}=True,\n{stem}_kwargs={{"use_reentrant": False, "every_n_layers": 2}},'
        assert patch["torch"] == f'model.{stem}_enable({stem}_kwargs={{"use_reentrant": False}}, every_n_layers=2)'
    assert not {"trainer", "torch"} & set(patched(change, OLDEST))  # half of it would be another change


@pytest.mark.parametrize(
    ("settings", "change", "lines"),
    [
        ({"gradient_checkpointing": True}, {"gradient_checkpointing": False}, "activation_checkpointing=False,"),
        ({"precision": "fp16"}, {"precision": "bf16"}, "fp16=False,\nbf16=True,"),
        ({"precision": "bf16"}, {"precision": "fp32"}, "bf16=False,"),
        ({"torch_empty_cache_steps": 4}, {"torch_empty_cache_steps": None}, "torch_empty_cache_steps=None,"),
        ({"evaluate": True}, {"evaluate": False}, 'eval_strategy="no",'),
        ({"optim_args": "a=1"}, {"optim_args": ""}, "optim_args=None,"),
        ({"optimizer": "sgd"}, {"optim_args": "momentum=0.9"}, 'optim_args="momentum=0.9",'),
        ({}, {"optim_target_modules": ["attention"]}, 'optim_target_modules=["attention"],'),
        ({"evaluate": True}, {"eval_accumulation_steps": 1, "prediction_loss_only": True},
         "eval_accumulation_steps=1,\nprediction_loss_only=True,"),
    ],
)  # fmt: skip
def test_what_no_longer_applies_is_turned_off(settings: dict[str, Any], change: dict[str, Any], lines: str) -> None:
    assert patched(change, **settings)["trainer"] == lines


def test_a_loop_by_hand_has_no_trainer() -> None:
    assert set(patched(MINIMAL, loop="custom")) == {"torch", "deepspeed", "cli"}


def test_a_statement_that_is_replaced_loses_nothing() -> None:
    kept = {"task": "token-classification", "num_labels": 9, "dtype": "bfloat16"}
    assert patched({"attention": "sdpa"}, **kept)["model"].splitlines() == [
        "import torch",
        "from transformers import AutoModelForTokenClassification",
        "",
        (
            'model = AutoModelForTokenClassification.from_pretrained("bert-base-uncased", num_labels=9, '
            'attn_implementation="sdpa", dtype=torch.bfloat16)'
        ),
    ]


def test_freezing_and_lora() -> None:
    assert patched({"freeze": ["*embeddings*"], "lora_rank": 8, "lora_target_modules": ["query"]})["model"] == (
        "from peft import LoraConfig, get_peft_model\n"
        "from fnmatch import fnmatch\n\n"
        'model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=8, target_modules=["query"]))\n'
        "for name, parameter in model.named_parameters():\n"
        '    parameter.requires_grad &= not any(fnmatch(name, p) for p in ["*embeddings*"])'
    )


def test_data() -> None:
    assert patched({"seq_length": 128})["data"] == "tokenized = tokenizer(texts, max_length=128, truncation=True)"
    assert patched({"padded": True})["data"].endswith("max_length=512, truncation=True, padding=True)")


def test_a_model_of_the_users_own_has_no_from_pretrained() -> None:
    settings = {"model": "package.module:make"}
    assert "model" not in patched({"attention": "sdpa"}, **settings)
    assert patched({"dtype": "bfloat16"}, **settings)["model"] == "import torch\n\nmodel = model.to(torch.bfloat16)"


def test_deepspeed_has_a_block_and_notes() -> None:
    change = {**MINIMAL, "max_grad_norm": 0.5, "optimizer": "adamw_torch"}
    lines = patched(change)["deepspeed"].splitlines()
    notes = [line for line in lines if line.startswith("#")]
    assert [note.split()[1] for note in notes] == ["activation", "optimizer:"]
    assert json.loads("\n".join(lines[len(notes) :])) == {
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8, "gradient_clipping": 0.5,
        "fp16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
    }  # fmt: skip


def test_deepspeed_has_no_block_for_checkpointing() -> None:
    assert patched({"gradient_checkpointing": True})["deepspeed"].startswith(
        "# activation checkpointing is switched on"
    )
    assert "deepspeed" not in patched({"seq_length": 128})


@pytest.mark.parametrize(
    ("torch", "name"),
    [(None, "PYTORCH_CUDA_ALLOC_CONF"), ("2.8.1", "PYTORCH_CUDA_ALLOC_CONF"), ("2.9.0", "PYTORCH_ALLOC_CONF"),
     ("2.13.0+cpu", "PYTORCH_ALLOC_CONF")],
)  # fmt: skip
def test_the_allocator_is_set_up_in_the_shell(torch: str | None, name: str) -> None:
    conf = "expandable_segments:True"
    patch = patch_of(workload(), {"cuda_alloc_conf": conf}, NEW, torch=torch, gpu="T4", command="probe")
    assert patch == {
        "environment": f"export {name}={conf}",
        "cli": f"memdoctor probe -m bert-base-uncased -b 8 -s 512 --gpu T4 --cuda-alloc-conf {conf}",
    }


def test_the_allocators_settings_are_kept_or_taken_away() -> None:
    conf = "max_split_size_mb:128"
    kept = patch_of(workload(), {"batch_size": 4}, NEW, alloc_conf=conf)
    assert "environment" not in kept
    assert kept["cli"].endswith(f"-b 4 -s 512 --cuda-alloc-conf {conf}")
    gone = patch_of(workload(), {"cuda_alloc_conf": ""}, NEW, alloc_conf=conf)
    assert gone["environment"] == "unset PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF"
    assert "alloc" not in gone["cli"]
