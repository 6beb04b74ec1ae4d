"""Every input that cannot be served: its exit code, one message that says what to do, and nothing else touched."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

USAGE, INPUT, MEASURE = 2, 5, 6
BASE = ("diagnose", "--model", "bert-base-uncased")
TINY = ("--model", "prajjwal1/bert-tiny", "-b", "1", "-s", "16")

BAD = {
    # what is asked, the exit code, and words that the message has
    "unknown-model": (("diagnose", "--model", "bert-base-uncasd"), INPUT, ["bert-base-uncasd", "bert-base-uncased"]),
    "model-of-another": (("diagnose", "--model", "me/bert-base-uncased"), INPUT, ["me/bert-base-uncased"]),
    "model-of-300-letters": (("diagnose", "--model", "x" * 300), INPUT, ["unknown model"]),
    "model-of-nobody": (("diagnose", "--model", "~nobody-of-this-name/x"), INPUT, ["nobody-of-this-name"]),
    "model-that-is-a-folder": (("diagnose", "--model", "folder"), INPUT, ["folder", "config.json"]),
    "model-that-is-no-config": (("diagnose", "--model", "mine.json"), INPUT, ["mine.json"]),
    "unknown-gpu": ((*BASE, "--gpu", "T5000"), INPUT, ["T5000", "A5000", "memdoctor gpus"]),
    "ambiguous-gpu": ((*BASE, "--gpu", "A100"), INPUT, ["A100-40GB", "A100-80GB"]),
    "batch-0": ((*BASE, "-b", "0"), USAGE, ["--batch-size", "0"]),
    "batch-negative": ((*BASE, "-b", "-1"), USAGE, ["--batch-size", "-1"]),
    "batch-of-words": ((*BASE, "-b", "many"), USAGE, ["--batch-size", "many"]),
    "batch-beyond-any-gpu": ((*BASE, "-b", "1000000"), INPUT, ["1,000,000", "--batch-size"]),
    "toggle-beyond-any-gpu": (("probe", *TINY, "--toggle", "batch_size=9999999"), INPUT, ["9,999,999"]),
    "length-0": ((*BASE, "-s", "0"), USAGE, ["--seq-length"]),
    "length-513": ((*BASE, "-s", "513"), INPUT, ["513", "512"]),
    "length-100000": ((*BASE, "-s", "100000"), INPUT, ["100000", "512"]),
    "no-model": (("diagnose",), USAGE, ["--model"]),
    "unknown-command": (("diagnoze",), USAGE, ["diagnoze", "diagnose"]),
    "command-like-none": (("zzzz",), USAGE, ["zzzz", "diagnose", "report"]),
    "command-of-later": (("check",), USAGE, ["check", "later version"]),
    "fit-length-of-words": (("fit", *TINY, "--lengths", "128;256"), USAGE, ["--lengths", "128,256,512"]),
    "fit-length-0": (("fit", *TINY, "--lengths", "0"), USAGE, ["--lengths"]),
    "fit-length-513": (("fit", *TINY[:2], "--lengths", "128,513"), INPUT, ["513", "512"]),
    "fit-batch-twice": (("fit", *TINY, "--effective-batch", "8"), USAGE, ["--effective-batch", "--batch-size"]),
    "fit-unknown-card": (("fit", *TINY, "--gpus", "T4,T5000"), INPUT, ["T5000", "memdoctor gpus"]),
    "fit-card-without-name": (("fit", *TINY, "--gpus", "T4,"), USAGE, ["--gpus"]),
    "fit-one-card-and-many": (("fit", *TINY, "--gpus", "L4", "--gpu", "T4"), USAGE, ["--gpus", "--gpu"]),
    "fit-cards-and-lengths": (("fit", *TINY, "--gpus", "L4", "--lengths", "64"), USAGE, ["--gpus", "--lengths"]),
    "fit-on-the-cpu": (("fit", *TINY, "--backend", "cpu"), USAGE, ["fit", "--backend cpu"]),
    "fit-memory-without-unit": (("fit", *TINY, "--memory", "8"), USAGE, ["'8'", "GiB"]),
    "recording": (("record",), USAGE, ["record", "python -m memdoctor.probes.record"]),
    "recording-mistyped": (("recrod",), USAGE, ["recrod", "python -m memdoctor.probes.record"]),
    "report-mistyped": (("reprot",), USAGE, ["Did you mean report?"]),
    "forgotten-run": (("train.py",), USAGE, ["memdoctor run train.py", "later version"]),
    "option-of-later": ((*BASE, "--deepspeed", "ds.json"), USAGE, ["deepspeed", "later version"]),
    "forgotten-report": (("mine.json",), USAGE, ["memdoctor report mine.json"]),
    "unknown-option": ((*BASE, "--bach-size", "8"), USAGE, ["--bach-size", "--batch-size"]),
    "two-precisions": ((*BASE, "--fp16", "--bf16"), USAGE, ["--fp16", "--bf16"]),
    "precision-twice": ((*BASE, "--precision", "fp32", "--fp16"), USAGE, ["fp16", "fp32"]),
    "precision-and-not": ((*BASE, "--precision", "fp16", "--no-fp16"), USAGE, ["fp16"]),
    "unknown-precision": ((*BASE, "--precision", "fp8"), USAGE, ["fp8", "bf16"]),
    "unknown-task": ((*BASE, "--task", "translation"), USAGE, ["translation", "masked-lm"]),
    "flash-attention-2": ((*BASE, "--attn-implementation", "flash_attention_2"), USAGE, ["flash_attention_2", "sdpa"]),
    "alloc-conf-unknown": ((*BASE, "--cuda-alloc-conf", "expandable_segment:True"), USAGE, ["expandable_segments"]),
    "alloc-conf-async": ((*BASE, "--cuda-alloc-conf", "backend:cudaMallocAsync"), USAGE, ["cudaMallocAsync"]),
    "alloc-conf-fraction": ((*BASE, "--cuda-alloc-conf", "per_process_memory_fraction:0.5"), USAGE, ["--memory"]),
    "alloc-conf-too-large": ((*BASE, "--cuda-alloc-conf", "large_segment_size_mb:99999999999999"), USAGE, ["size"]),
    "target-modules-no-pattern": (
        ("probe", *TINY, "--optim", "galore_adamw", "--optim-target-modules", "["), INPUT, ["galore_adamw"],
    ),
    "fp16-over-bf16": ((*BASE, "--fp16", "--dtype", "bfloat16"), USAGE, ["GradScaler"]),
    "fp16-over-fp16": ((*BASE, "--fp16", "--dtype", "float16"), USAGE, ["GradScaler"]),
    "unknown-optimizer": (("probe", *TINY, "--optim", "adamw_8bits"), INPUT, ["adamw_8bits", "adamw_bnb_8bit"]),
    "smoothing-of-1": ((*BASE, "--label-smoothing-factor", "1"), USAGE, ["--label-smoothing-factor"]),
    "factory-of-nobody": (("probe", "--model", "nowhere.at:make"), INPUT, ["nowhere.at", "imported", "No module"]),
    "memory-without-unit": ((*BASE, "--memory", "8"), USAGE, ["'8'", "GiB"]),
    "memory-of-5000-digits": ((*BASE, "--memory", "9" * 5000 + " GiB"), USAGE, ["size"]),
    "memory-of-400-digits": ((*BASE, "--memory", "9" * 400 + " GiB"), USAGE, ["size"]),
    "memory-less-than-context": ((*BASE, "--memory", "10 MiB"), USAGE, ["10 MiB", "context"]),
    "norm-nan": ((*BASE, "--max-grad-norm", "nan"), USAGE, ["norm"]),
    "norm-inf": ((*BASE, "--max-grad-norm", "inf"), USAGE, ["norm"]),
    "norm-negative": ((*BASE, "--max-grad-norm", "-1"), USAGE, ["norm"]),
    "time-limit-0": ((*BASE, "--time-limit", "0"), USAGE, ["--time-limit"]),
    "time-limit-nan": ((*BASE, "--time-limit", "nan"), USAGE, ["--time-limit"]),
    "unknown-toggle": (("probe", *TINY, "--toggle", "colour=red"), USAGE, ["colour", "precision"]),
    "toggle-without-value": (("probe", *TINY, "--toggle", "precision"), USAGE, ["precision"]),
    "toggle-to-nonsense": (("probe", *TINY, "--toggle", "precision=fp8"), USAGE, ["fp8", "fp16"]),
    "toggle-too-long": (("probe", *TINY, "--toggle", "seq_length=513"), INPUT, ["513", "512"]),
    "repeat-0": (("probe", *TINY, "--repeat", "0"), USAGE, ["--repeat"]),
    "several-gpus": ((*BASE, "--strategy", "ddp"), INPUT, ["single"]),
    "world-of-two": ((*BASE, "--world-size", "2"), INPUT, ["--world-size 1"]),
    "backend-gpu": ((*BASE, "--backend", "gpu"), MEASURE, ["GPU", "--backend simulated"]),
    "backend-cpu": ((*BASE, "--backend", "cpu"), USAGE, ["does not run on the CPU", "probe --backend cpu"]),
    "output-in-no-folder": ((*BASE, "-o", "nowhere/a.json"), INPUT, ["nowhere"]),
    "output-exists": ((*BASE, "-o", "mine.json"), INPUT, ["mine.json", "-f"]),
    "output-is-a-folder-of-that-suffix": ((*BASE, "-o", "folder.json", "-f"), INPUT, ["folder.json", "directory"]),
    "output-of-300-letters": ((*BASE, "-o", "x" * 300 + ".json"), INPUT, ["cannot write"]),
    "output-of-unknown-suffix": ((*BASE, "-o", "a.xyz"), USAGE, [".xyz", ".json"]),
    "output-without-suffix": ((*BASE, "-o", "a"), USAGE, [".json"]),
    "output-compressed-nothing": ((*BASE, "-o", "a.gz"), USAGE, [".json.gz"]),
    "second-output-bad": ((*BASE, "-o", "a.json", "-o", "nowhere/b.json"), INPUT, ["nowhere"]),
    "report-nowhere": (("report", "nowhere.json"), INPUT, ["nowhere.json"]),
    "report-of-nothing": (("report",), USAGE, ["FILE"]),
    "report-of-a-folder": (("report", "folder"), INPUT, ["folder"]),
    "report-of-anything": (("report", "mine.json"), INPUT, ["mine.json"]),
    "report-of-an-empty-file": (("report", "empty.json"), INPUT, ["empty.json"]),
    "report-onto-itself": (("report", "mine.json", "-o", "mine.json", "-f"), USAGE, ["mine.json", "lost"]),
    "report-cut-off": (("report", "cut.json.gz"), INPUT, ["cut.json.gz", "broken"]),
    "report-of-the-future": (("report", "newer.json"), INPUT, ["newer.json", "upgrade"]),
    "report-of-another-kind": (("report", "check.json"), INPUT, ["check.json", "check"]),
    "report-of-half-a-diagnosis": (("report", "half.json"), INPUT, ["half.json", "workload"]),
    "unknown-schema": (("schema", "poem"), USAGE, ["poem", "diagnosis"]),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the inputs above name."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.json").mkdir()
    ours = {"schema_version": 1, "kind": "diagnosis"}
    texts = {
        "mine.json": "{}",
        "empty.json": "",
        "newer.json": json.dumps({**ours, "schema_version": 99}),
        "check.json": json.dumps({**ours, "kind": "check"}),
        "half.json": json.dumps(ours),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(json.dumps(ours).encode())[:-5])
    return tmp_path


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path in the folder, and what files hold."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def check(done: Any, code: int, words: list[str]) -> None:
    """One message on standard error, this exit code, and silence on standard output."""
    assert done.returncode == code, done.stderr[-1000:]
    assert done.stdout == ""
    assert len(done.stderr) < 2000
    assert "Traceback" not in done.stderr
    assert "Internal error" not in done.stderr
    assert done.stderr.count("Error") == 1
    message = " ".join(done.stderr.split())
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_error(run: Any, folder: Path, name: str) -> None:
    arguments, code, words = BAD[name]
    before = contents(folder)
    check(run(*arguments, cwd=folder), code, words)
    assert contents(folder) == before


def test_an_optimizer_that_cannot_be_probed_is_answered_with_those_that_can(run: Any, folder: Path) -> None:
    before = contents(folder)
    done = run("probe", *TINY, "--optim", "adamw_anyprecision", "-o", "a.json", "-q", cwd=folder)
    check(done, INPUT, ["adamw_anyprecision", "adamw_torch", "--optim"])
    assert contents(folder) == before


def test_a_probe_past_its_time_limit_says_so(run: Any, folder: Path) -> None:
    before = contents(folder)
    done = run("diagnose", *TINY, "--time-limit", "0.2", "-o", "a.json", cwd=folder)
    check(done, MEASURE, ["0.2 s", "--time-limit"])
    assert contents(folder) == before


def test_an_error_keeps_its_code_when_json_was_asked_for(run: Any, folder: Path) -> None:
    check(run(*BASE, "--gpu", "T5000", "--json", cwd=folder), INPUT, ["T5000"])


def test_an_error_is_told_quietly_too(run: Any, folder: Path) -> None:
    check(run(*BASE, "--gpu", "T5000", "-q", cwd=folder), INPUT, ["T5000"])


def test_an_error_shows_no_traceback_even_when_bugs_would(run: Any, folder: Path) -> None:
    check(run(*BASE, "--gpu", "T5000", "-v", cwd=folder), INPUT, ["T5000"])


def test_names_that_the_terminal_cannot_show_are_no_bug(run: Any, folder: Path) -> None:
    check(run("report", "größe.json", cwd=folder, PYTHONIOENCODING="ascii"), INPUT, ["no file"])
