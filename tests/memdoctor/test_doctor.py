"""The use cases: what is filled in is said, and what cannot be is refused before any work is done."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from memdoctor.cases import REFERENCE_GPU
from memdoctor.catalogue import find_gpu
from memdoctor.doctor import (
    Case,
    conclude,
    load_examination,
    open_case,
    parse_change,
)
from memdoctor.errors import InputError, UsageError
from memdoctor.measuring import describe
from memdoctor.records import Attention, Counters, Examination, Precision, Task, Workload
from memdoctor.reports.documents import diagnosis_document, examination_document
from memdoctor.storage import write_document
from memdoctor.units import GIB

TRAINER_DEFAULTS = """
import dataclasses, json
from transformers.training_args import TrainingArguments
defaults = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
names = ("per_device_train_batch_size", "optim", "max_grad_norm", "gradient_accumulation_steps", "fp16", "bf16",
         "gradient_checkpointing")
print(json.dumps({name: defaults[name] for name in names}))
"""


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without NVML."""
    monkeypatch.setitem(sys.modules, "pynvml", None)


@pytest.fixture
def gpu_in_this_machine(nvml: Any, pretend_gpus: Any) -> Callable[..., None]:
    """Stand in for NVML with one card, of which the driver keeps one GiB."""

    def pretend(name: str, total: int, **properties: Any) -> None:
        pretend_gpus(nvml.card(name=name, total=total + GIB, capability=[8, 9], **properties))

    return pretend


def assumed(case: Case) -> str:
    """What was filled in, as one text."""
    return ", ".join(case.assumed)


def test_defaults_are_those_of_the_installed_trainer() -> None:
    pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, "-c", TRAINER_DEFAULTS], capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)
    ours = Workload(model="bert")
    assert ours.batch_size == theirs["per_device_train_batch_size"]
    assert ours.optimizer == theirs["optim"]
    assert ours.max_grad_norm == theirs["max_grad_norm"]
    assert ours.gradient_accumulation_steps == theirs["gradient_accumulation_steps"]
    assert ours.gradient_checkpointing == bool(theirs["gradient_checkpointing"])
    assert (ours.precision is Precision.FP32) == (not theirs["fp16"] and not theirs["bf16"])


def test_everything_that_was_not_said_is_assumed_and_named() -> None:
    case = open_case("bert-base-uncased")
    assert case.workload == Workload(model="bert-base-uncased")
    for words in ("batch_size 8", "seq_length 512", "fp32", "adamw_torch_fused", "max_grad_norm 1.0", "padding", "T4"):
        assert words in assumed(case)


def test_what_was_said_is_not_called_assumed() -> None:
    case = open_case(
        "bert-base-uncased", gpu="T4", batch_size=4, seq_length=64, precision=Precision.FP16, optimizer="sgd",
        max_grad_norm=0.0, padded=False, attention=Attention.EAGER,
    )  # fmt: skip
    assert case.assumed == ()
    assert (case.workload.batch_size, case.workload.seq_length, case.workload.optimizer) == (4, 64, "sgd")


def test_evaluation_assumes_its_own() -> None:
    case = open_case("bert-base-uncased", evaluate=True, eval_samples=50)
    assert "eval_batch_size 8" in case.assumed
    assert not any("eval_samples" in word for word in case.assumed)
    assert not any("eval" in word for word in open_case("bert-base-uncased").assumed)


def test_the_allocators_settings_are_those_of_the_option_else_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert open_case("bert-base-uncased").device.alloc_conf == ""
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128")
    case = open_case("bert-base-uncased")
    assert case.device.alloc_conf == "max_split_size_mb:128"
    assert "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128" in case.assumed
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    assert open_case("bert-base-uncased").device.alloc_conf == "expandable_segments:True"
    assert open_case("bert-base-uncased", alloc_conf="").device.alloc_conf == ""


def test_a_setting_of_none_was_not_said() -> None:
    assert open_case("bert-base-uncased", batch_size=None).workload.batch_size == 8


def test_the_length_is_512_or_what_the_model_takes(tmp_path: Path) -> None:
    for positions, length in ((64, 64), (4096, 512)):
        config = {"model_type": "bert", "max_position_embeddings": positions}
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        case = open_case(str(tmp_path))
        assert case.workload.seq_length == length
        assert f"seq_length {length}" in assumed(case)


def test_every_task_of_the_interface_is_taken() -> None:
    for task in Task:
        assert open_case("bert-base-uncased", task=task).workload.task is task


def test_an_unknown_gpu_is_answered_with_near_names() -> None:
    with pytest.raises(InputError, match="T5000") as caught:
        open_case("bert-base-uncased", gpu="T5000")
    assert "A5000" in caught.value.hint
    assert "memdoctor gpus" in caught.value.hint


def test_a_gpu_like_none_is_answered_with_where_to_look() -> None:
    with pytest.raises(InputError, match="MI300X") as caught:
        open_case("bert-base-uncased", gpu="MI300X")
    assert caught.value.hint == "memdoctor gpus"


def test_an_ambiguous_gpu_is_answered_with_the_cards_it_may_mean() -> None:
    with pytest.raises(InputError) as caught:
        open_case("bert-base-uncased", gpu="A100")
    assert "A100-40GB" in caught.value.hint
    assert "A100-80GB" in caught.value.hint


def test_an_unknown_model_is_answered_with_near_names() -> None:
    with pytest.raises(InputError, match="bert-base-uncasd") as caught:
        open_case("bert-base-uncasd", offline=True)
    assert caught.value.hint.startswith("bert-base-uncased")
    assert "memdoctor models" in caught.value.hint


@pytest.mark.parametrize(("model", "longest"), [("bert-base-uncased", 512), ("roberta-base", 512)])
def test_a_length_above_the_models_maximum_says_the_maximum(model: str, longest: int) -> None:
    assert open_case(model, seq_length=longest).workload.seq_length == longest
    with pytest.raises(InputError, match=str(longest + 1)) as caught:
        open_case(model, seq_length=longest + 1)
    assert str(longest) in caught.value.why
    assert f"--seq-length {longest}" in caught.value.hint


@pytest.mark.parametrize("setting", ["batch_size", "seq_length", "num_labels", "gradient_accumulation_steps"])
def test_a_count_of_zero_is_a_usage_error(setting: str) -> None:
    with pytest.raises(UsageError, match=f"{setting} is 0"):
        open_case("bert-base-uncased", **{setting: 0})


@pytest.mark.parametrize("settings", [{"strategy": "ddp"}, {"strategy": "zero3"}, {"world_size": 2}])
def test_several_gpus_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="several GPUs"):
        open_case("bert-base-uncased", **settings)


@pytest.mark.parametrize("backend", ["auto", "simulated"])
def test_a_backend_that_simulates_is(backend: str) -> None:
    assert open_case("bert-base-uncased", backend=backend).device.name == REFERENCE_GPU


def test_memory_replaces_the_size_of_the_card_and_nothing_else() -> None:
    card = open_case("bert-base-uncased", gpu="T4").device
    smaller = open_case("bert-base-uncased", gpu="T4", memory="8 GiB").device
    assert smaller.total_bytes == 8 * GIB
    assert "8 GiB" in smaller.source
    assert (smaller.context_bytes, smaller.compute_capability) == (card.context_bytes, card.compute_capability)


@pytest.mark.parametrize("memory", ["8", "8 GiBs", "", "0 GiB", "100 MiB", "1 B"])
def test_memory_that_is_no_size_or_less_than_the_context_is_a_usage_error(memory: str) -> None:
    with pytest.raises(UsageError, match=memory or "size"):
        open_case("bert-base-uncased", gpu="T4", memory=memory)


def test_the_card_of_this_machine_is_taken_with_the_size_that_it_has(gpu_in_this_machine: Any) -> None:
    gpu_in_this_machine("Tesla T4", 15 * GIB)
    case = open_case("bert-base-uncased")
    known = find_gpu("T4")
    assert known is not None
    assert (case.device.name, case.device.total_bytes) == ("T4", 15 * GIB)
    assert (case.device.context_bytes, case.device.context_source) == (known.context_bytes, known.context_source)
    assert "NVML" in case.device.source
    assert "T4, the first of this machine" in assumed(case)


def test_a_gpu_that_was_asked_for_comes_before_that_of_the_machine(gpu_in_this_machine: Any) -> None:
    gpu_in_this_machine("Tesla T4", 15 * GIB)
    case = open_case("bert-base-uncased", gpu="A100-40GB")
    assert case.device.name == "A100-40GB"
    assert "this machine" not in assumed(case)


@pytest.fixture
def case() -> Case:
    """BERT-base with everything assumed."""
    return open_case("bert-base-uncased")


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("precision=fp16", {"precision": "fp16"}),
        ("batch_size=16", {"batch_size": 16}),
        ("batch-size=16", {"batch_size": 16}),
        (" seq_length = 128 ", {"seq_length": 128}),
        ("gradient_checkpointing=true", {"gradient_checkpointing": True}),
        ("gradient-checkpointing=false", {"gradient_checkpointing": False}),
        ("attention=eager", {"attention": "eager"}),
        ("optimizer=sgd", {"optimizer": "sgd"}),
        ("max_grad_norm=0.5", {"max_grad_norm": 0.5}),
        ("task=masked-lm", {"task": "masked-lm"}),
    ],
)
def test_a_change_is_a_key_and_a_value_of_the_workload(case: Case, text: str, change: dict[str, Any]) -> None:
    parsed = parse_change(case, text)
    assert parsed == change
    assert [type(value) for value in parsed.values()] == [type(value) for value in change.values()]


@pytest.mark.parametrize(
    "text",
    ["", "=", "precision", "precision=", "precision=fp8", "colour=red", "batch_size=0", "batch_size=many", "model=gpt2",
     "gradient_checkpointing=perhaps", "strategy=ddp", "world_size=2", "batch_size=1.5"],
)  # fmt: skip
def test_a_change_to_what_is_not_there_is_a_usage_error(case: Case, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_change(case, text)
    assert f"--toggle {text}" in caught.value.what
    assert len(str(caught.value)) < 600


def test_an_unknown_key_is_answered_with_the_keys_there_are(case: Case) -> None:
    with pytest.raises(UsageError) as caught:
        parse_change(case, "colour=red")
    assert "precision" in caught.value.hint
    assert "batch_size" in caught.value.hint


def test_a_change_to_a_length_above_the_maximum_says_the_maximum(case: Case) -> None:
    with pytest.raises(InputError, match="513") as caught:
        parse_change(case, "seq_length=513")
    assert "512" in caught.value.why


def test_a_workload_is_told_in_a_few_words() -> None:
    settings = {"batch_size": 4, "seq_length": 64, "precision": Precision.BF16, "gradient_checkpointing": True}
    assert describe(Workload(model="bert", **settings)) == "batch 4 x 64, bf16, checkpointing"


def test_a_saved_examination_is_loaded(two_steps: Examination, tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    write_document(path, examination_document(two_steps), force=False)
    assert load_examination(path) == two_steps


def test_a_diagnosis_is_no_examination(two_steps: Examination, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_document(path, diagnosis_document(conclude(two_steps)), force=False)
    with pytest.raises(InputError, match="no examination") as caught:
        load_examination(path)
    assert "diagnosis" in caught.value.why


def test_a_negative_counter_is_a_broken_examination(two_steps: Examination, tmp_path: Path) -> None:
    path, counted = tmp_path / "a.json", Counters(**dict.fromkeys((field.name for field in fields(Counters)), 5))
    document = examination_document(replace(two_steps, counters=counted))
    document["counters"]["used_bytes"] = -5
    write_document(path, document, force=False)
    with pytest.raises(InputError, match="broken examination") as caught:
        load_examination(path)
    assert "used_bytes is -5, but must not be negative" in caught.value.why


def test_a_broken_examination_is_named(two_steps: Examination, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    document = examination_document(two_steps)
    del document["timeline"]
    write_document(path, document, force=False)
    with pytest.raises(InputError, match="broken examination") as caught:
        load_examination(path)
    assert "timeline" in caught.value.why
