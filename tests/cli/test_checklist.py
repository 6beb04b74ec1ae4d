"""The checklist and the claims on the command line, of a small model and a card that is too small for its batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CONFIG = {
    "model_type": "bert", "vocab_size": 64_000, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 512,
}  # fmt: skip
WORKLOAD = ("--task", "masked-lm", "-b", 3, "-s", 512, "--gpu", "T4", "--memory", "1 GiB")


@pytest.fixture(scope="module")
def claimed(run: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """``diagnose --checklist --claims``, and the file that it saved."""
    here = tmp_path_factory.mktemp("claimed")
    (here / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    path = here / "report.json"
    words = ("diagnose", "-m", here / "config.json", *WORKLOAD, "--checklist", "--claims", "-o", path)
    return run(*words, COLUMNS="80"), path


def test_the_checklist_and_the_claims_follow_the_view(claimed: tuple[Any, Path]) -> None:
    done, _ = claimed
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    heads = ("Does not fit", "The checklist, as", "The decisions", "What is said")
    at = [next(number for number, line in enumerate(lines) if line.startswith(head)) for head in heads]
    assert at == sorted(at)
    assert [line for line in lines if ">>>" in line] == ["4a  >>> Does a per-device batch of 1 run?"]
    assert max(map(len, lines)) <= 80


def test_the_document_has_them_with_what_was_probed(claimed: tuple[Any, Path]) -> None:
    document = json.loads(claimed[1].read_text(encoding="utf-8"))
    steps = {step["id"]: step for step in document["checklist"]}
    assert list(steps) == ["1", "2", "3", "4a", "4b", "4c", "4d", "5"]
    assert [name for name, step in steps.items() if step["cause"]] == ["4a"]
    assert steps["4a"]["probed"] == [{"batch_size": 1}, {"batch_size": 1, "gradient_accumulation_steps": 4}]
    assert steps["3"]["probed"][0]["gradient_accumulation_steps"] == 8
    assert len(document["decisions"]) == 4
    verdicts = {claim["id"]: claim["verdict"] for claim in document["claims"]}
    assert verdicts.pop("zero-2") == "not probed"
    assert set(verdicts.values()) <= {"confirmed", "refuted"}  # everything else was probed
    assert verdicts["accumulation"] == "refuted"


def test_a_saved_report_prints_them_again(claimed: tuple[Any, Path], run: Any) -> None:
    done, path = claimed
    again = run("report", path, "--checklist", COLUMNS="80")
    assert again.stdout == done.stdout


def test_a_report_without_a_checklist_says_so(run: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    path = tmp_path / "one.json"
    run("probe", "-m", tmp_path / "config.json", "-b", 1, "-s", 16, "--gpu", "T4", "-o", path)
    done = run("report", path, "--checklist")
    assert done.returncode == 2
    assert "--checklist has nothing to print" in done.stderr
