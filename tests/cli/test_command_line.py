"""The contract of the main commands: exit codes, JSON and its sums, options; each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

import memdoctor

ESCAPE = "\x1b"
MOST_LINES = 25
CATEGORIES = (
    "parameters", "gradients", "optimizer_state", "activations", "inputs_and_buffers", "autocast_copies", "temporaries",
    "workspace",
)  # fmt: skip
PARTS = (*CATEGORIES, "allocator_overhead", "context", "other_processes", "free")
PEAK = ("allocated_bytes", "reserved_bytes", "device_bytes", "phase", "step")
KEYS = {
    "tool": ("name", "version"),
    "workload": (
        "model", "task", "batch_size", "seq_length", "padded", "precision", "attention", "gradient_checkpointing",
        "optimizer", "gradient_accumulation_steps", "strategy", "world_size",
    ),
    "device": ("name", "total_bytes", "compute_capability", "context_bytes", "context_source"),
    "provenance": ("mode", "torch", "transformers", "created"),
    "peak": PEAK,
    "breakdown": PARTS,
    "scaling": ("per_sample_bytes", "fixed_bytes", "predicted"),
    "verdict": ("fits", "headroom_bytes", "cause", "sentence"),
}  # fmt: skip
LISTS = {
    "phases": ("step", "name", "peak_allocated_bytes", "end_allocated_bytes", "breakdown"),
    "modules": ("path", "parameters", "activations"),
    "tensors": ("bytes", "count", "dtype", "shape", "category", "module", "op", "phase"),
    "toggles": ("change", "peak", "breakdown", "saves_bytes"),
    "findings": ("id", "severity", "title", "detail", "evidence", "remedies"),
    "plan": ("change", "why", "peak", "fits", "saves_bytes", "time_cost", "numerics", "patch"),
    "budgets": ("name", "metric", "limit_bytes", "value_bytes", "status"),
}
MINE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(10, 4), nn.Linear(4, 2)

    def forward(self, input_ids, labels):
        return nn.functional.cross_entropy(self.head(self.words(input_ids).mean(1)), labels)

def wrong():
    return Net(), {"ids": torch.zeros(1, 3, dtype=torch.long)}

def make():
    return Net(), {"input_ids": torch.zeros(1, 3, dtype=torch.long), "labels": torch.zeros(1, dtype=torch.long)}
"""
BERT_BASE_PARAMETERS = 109_483_778  # transformers, with a head for two labels


def strings_in(value: Any) -> Iterator[str]:
    """Every string of a document, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


def test_the_main_job_succeeds_with_json_alone_on_standard_output(main_job: Any) -> None:
    assert main_job.done.returncode == 0, main_job.done.stderr
    assert main_job.document["kind"] == "diagnosis"
    assert main_job.document["schema_version"] == 1
    assert main_job.done.stdout.startswith("{")
    assert main_job.done.stdout.endswith("}\n")


def test_a_diagnosis_is_valid_against_the_schema(main_job: Any, run: Any) -> None:
    schema = json.loads(run("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(main_job.document, schema, jsonschema.Draft202012Validator)


def test_a_diagnosis_has_every_key_of_the_contract(main_job: Any) -> None:
    document = main_job.document
    missing = [f"{part}.{key}" for part, keys in KEYS.items() for key in keys if key not in document[part]]
    missing += [
        f"{part}[].{key}" for part, keys in LISTS.items() for item in document[part] for key in keys if key not in item
    ]
    assert missing == []
    assert document["tool"] == {"name": "memdoctor", "version": memdoctor.__version__}


def test_bytes_are_integers(main_job: Any) -> None:
    document = main_job.document
    assert all(type(document["breakdown"][part]) is int for part in PARTS)
    assert all(type(document["peak"][key]) is int for key in PEAK if key.endswith("bytes"))
    assert type(document["verdict"]["headroom_bytes"]) is int


def test_the_breakdown_sums_to_the_card_and_its_categories_to_the_peak(main_job: Any) -> None:
    document = main_job.document
    parts, peak, total = document["breakdown"], document["peak"], document["device"]["total_bytes"]
    assert set(parts) == set(PARTS)
    assert sum(parts.values()) == total
    assert sum(parts[name] for name in CATEGORIES) == peak["allocated_bytes"]
    assert peak["allocated_bytes"] + parts["allocator_overhead"] == peak["reserved_bytes"]
    assert peak["reserved_bytes"] + parts["context"] + parts["other_processes"] == peak["device_bytes"]
    assert document["verdict"]["headroom_bytes"] == parts["free"] == total - peak["device_bytes"]


def test_every_phase_and_every_toggle_sums_too(main_job: Any) -> None:
    document = main_job.document
    for phase in document["phases"]:
        assert sum(phase["breakdown"].values()) == document["device"]["total_bytes"]
        assert sum(phase["breakdown"][name] for name in CATEGORIES) == phase["peak_allocated_bytes"]
    for toggle in document["toggles"]:
        parts, peak = toggle["breakdown"], toggle["peak"]
        assert sum(parts.values()) == document["device"]["total_bytes"]
        assert sum(parts[name] for name in CATEGORIES) == peak["allocated_bytes"]
        assert toggle["saves_bytes"] == document["peak"]["reserved_bytes"] - peak["reserved_bytes"]


def test_modules_and_tensors_sum_to_the_peak(main_job: Any) -> None:
    document = main_job.document
    peak = document["peak"]["allocated_bytes"]
    assert sum(module[name] for module in document["modules"] for name in CATEGORIES) == peak
    assert sum(tensor["bytes"] for tensor in document["tensors"]) == peak


def test_a_diagnosis_counts_the_parameters_of_the_published_model(main_job: Any) -> None:
    assert main_job.document["breakdown"]["parameters"] == 4 * BERT_BASE_PARAMETERS


def test_the_phases_are_those_of_two_steps(main_job: Any) -> None:
    step = ["forward", "backward", "clip", "optimizer", "zero_grad"]
    names = [(phase["step"], phase["name"]) for phase in main_job.document["phases"]]
    assert names == [(0, "setup"), *((number, name) for number in (1, 2) for name in step)]


def test_a_diagnosis_probes_at_least_four_changes_each_of_the_workloads_own_keys(main_job: Any) -> None:
    document = main_job.document
    assert len(document["toggles"]) >= 4
    for toggle in document["toggles"]:
        assert toggle["change"]
        assert all(document["workload"][name] != value for name, value in toggle["change"].items())


def test_the_prediction_is_checked_against_the_probe(main_job: Any) -> None:
    document = main_job.document
    check = document["scaling"]["check"]
    assert check["batch_size"] == document["workload"]["batch_size"] == 8
    assert check["probed_allocated_bytes"] == document["peak"]["allocated_bytes"]
    assert check["difference_bytes"] == check["predicted_allocated_bytes"] - check["probed_allocated_bytes"]
    assert abs(check["difference_bytes"]) < 0.01 * check["probed_allocated_bytes"]
    by_batch = {prediction["batch_size"]: prediction for prediction in document["scaling"]["predicted"]}
    probed = {t["change"]["batch_size"]: t["peak"] for t in document["toggles"] if list(t["change"]) == ["batch_size"]}
    # The two batches that the lines are drawn from come out as they were probed.
    for batch in set(document["scaling"]["from_batches"]) & set(probed) & set(by_batch):
        assert by_batch[batch]["allocated_bytes"] == probed[batch]["allocated_bytes"]


def test_a_diagnosis_says_what_it_assumed(main_job: Any) -> None:
    assumed = ", ".join(main_job.document["assumed"])
    for words in ("batch_size 8", "seq_length 512", "fp32", "adamw_torch_fused", "max_grad_norm 1.0", "padding"):
        assert words in assumed
    assert main_job.document["device"]["name"] in assumed
    assert main_job.document["provenance"]["mode"] == "simulated"


def test_the_report_names_nothing_of_the_machine(main_job: Any) -> None:
    home = str(Path.home())
    assert [text for text in strings_in(main_job.document) if home in text or "/site-packages" in text] == []


def test_the_saved_file_is_the_same_document(main_job: Any, run: Any) -> None:
    assert json.loads(run("report", main_job.path, "--json").stdout) == main_job.document
    assert f"wrote {main_job.path}" in main_job.done.stderr


def test_a_probe_succeeds_and_says_where_it_ran_out(large: Any) -> None:
    assert large.done.returncode == 0, large.done.stderr
    assert large.document["kind"] == "examination"
    assert large.document["outcome"]["kind"] == "ran_out"
    assert large.document["outcome"]["requested_bytes"] > large.document["outcome"]["free_bytes"] >= 0


def test_an_examination_is_valid_against_its_schema(large: Any, run: Any) -> None:
    schema = json.loads(run("schema", "examination").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(large.document, schema, jsonschema.Draft202012Validator)


def test_what_is_missing_is_free_below_zero_and_the_headroom(large: Any, run: Any) -> None:
    document = json.loads(run("report", large.path, "--json").stdout)
    parts, verdict = document["breakdown"], document["verdict"]
    assert verdict["fits"] is False
    assert verdict["headroom_bytes"] == parts["free"] < -(10 * 1024**3)
    assert sum(parts.values()) == document["device"]["total_bytes"]
    assert parts["free"] == document["device"]["total_bytes"] - document["peak"]["device_bytes"]
    assert verdict["cause"] == "activations"
    assert "activations" in verdict["sentence"]


def test_a_diagnosis_succeeds_whatever_the_verdict(run: Any) -> None:
    """The whole way to the terminal, with a card so small that even a tiny model does not fit."""
    options = ("--model", "prajjwal1/bert-tiny", "-b", 4, "-s", 32, "--gpu", "T4", "--memory", "180 MiB")
    done = run("diagnose", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Does not fit, ")
    assert ESCAPE not in done.stdout
    assert "The size of the model is the cause" in done.stdout
    assert "*embeddings* frozen" in done.stdout
    again = "--model prajjwal1/bert-tiny -b 4 -s 32 --gpu T4 --memory '180 MiB'"  # what was asked, not the defaults
    assert f"next: memdoctor diagnose {again} -o report.json" in done.stderr
    assert len(done.stdout.splitlines()) <= MOST_LINES


def test_options_may_be_written_as_in_training_arguments(run: Any) -> None:
    done = run(
        "probe", "--model", "google/bert_uncased_L-2_H-128_A-2", "--per_device_train_batch_size", 3,
        "--max_seq_length", 24, "--gradient_checkpointing", "--attn_implementation", "eager", "--max_grad_norm", 0,
        "--task", "token_classification", "--num_labels", 5, "--optim", "sgd", "--bf16", "--json", "-q",
        "--optim_args", "momentum=0.9", "--per_device_eval_batch_size", 2, "--eval_samples", 4,
        "--eval_accumulation_steps", 1, "--torch_empty_cache_steps", 2, "--group_by_length",
        "--cuda_alloc_conf", "expandable_segments:True",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    document = json.loads(done.stdout)
    workload = document["workload"]
    assert document["device"]["alloc_conf"] == "expandable_segments:True"
    assert document["phases"][-1]["name"] == "evaluation"  # an option of evaluation asks for it
    assert (workload["evaluate"], workload["eval_batch_size"], workload["eval_samples"]) == (True, 2, 4)
    assert (workload["eval_accumulation_steps"], workload["torch_empty_cache_steps"]) == (1, 2)
    assert workload["optim_args"] == "momentum=0.9"
    assert (workload["batch_size"], workload["seq_length"], workload["num_labels"]) == (3, 24, 5)
    assert (workload["precision"], workload["attention"], workload["optimizer"]) == ("bf16", "eager", "sgd")
    assert (workload["gradient_checkpointing"], workload["max_grad_norm"]) == (True, 0)
    assert workload["task"] == "token-classification"


def test_a_model_of_ones_own_is_diagnosed_without_what_it_does_not_allow(run: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    done = run("diagnose", "--model", "mine:make", "-b", 2, "-s", 8, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine:make" in done.stdout
    assert "note    not probed: mine:make has no switch for activation checkpointing" in done.stdout
    assert "seq length 128" in done.stdout


def test_a_batch_that_ones_own_model_does_not_take_is_told_without_a_traceback(run: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    done = run("probe", "--model", "mine:wrong", "-b", 2, "-s", 8, cwd=tmp_path)
    assert done.returncode == 6
    assert "unexpected keyword argument 'ids'" in done.stderr


def test_repeated_and_toggled_probes_are_told(run: Any) -> None:
    options = ("--model", "prajjwal1/bert-tiny", "-b", 1, "-s", 16, "--repeat", 2, "--toggle", "precision=fp16")
    done = run("probe", *options)
    assert done.returncode == 0, done.stderr
    assert "the same bytes" in done.stdout
    assert "fp16" in done.stdout
    assert "ran 3 probes" in done.stderr
    assert "precision fp32" in done.stdout  # it was assumed
    again = "--model prajjwal1/bert-tiny -b 1 -s 16"  # without what a diagnosis does not take
    assert done.stderr.rstrip().endswith(f"next: memdoctor diagnose {again}")
