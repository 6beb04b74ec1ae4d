"""``memdoctor fit`` as users meet it: the table, its JSON, the file, and the report of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

TINY = ("fit", "--model", "prajjwal1/bert-tiny", "--gpu", "T4", "--memory", "1 GiB", "--lengths", "64")


@pytest.fixture(scope="module")
def saved(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A wanted batch that does not fit as it is; what was printed, and the file."""
    path = tmp_path_factory.mktemp("fit") / "fit.json.gz"
    return run(*TINY, "--effective-batch", 1024, "-o", path), path


def document(run: Any, path: Path) -> dict[str, Any]:
    """The saved fit as JSON."""
    read: dict[str, Any] = json.loads(run("report", path, "--json").stdout)
    return read


def test_the_answer_is_the_first_line_and_progress_is_elsewhere(saved: Any) -> None:
    done, path = saved
    assert done.returncode == 0
    assert done.stdout.startswith("Effective batch 1024 at 64 tokens fits with ")
    assert "simulated" in " ".join(done.stdout.splitlines()[:3])
    assert "probes" in done.stderr
    assert f"wrote {path}" in done.stderr
    assert f"next: memdoctor report {path}" in done.stderr


def test_the_document_keeps_to_its_schema(run: Any, saved: Any) -> None:
    schema = json.loads(run("schema", "fit").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    made = document(run, saved[1])
    assert made["kind"] == "fit"
    jsonschema.Draft202012Validator(schema).validate(made)


def test_every_cell_has_its_edge_and_the_plan_fits(run: Any, saved: Any) -> None:
    made = document(run, saved[1])
    assert [cell["change"] for cell in made["cells"]] == [
        {}, {"gradient_checkpointing": True}, {"precision": "fp16"},
        {"precision": "fp16", "gradient_checkpointing": True},
    ]  # fmt: skip
    for cell in made["cells"]:
        fits = {trial["batch_size"]: trial["fits"] for trial in cell["edge"]["trials"]}
        largest = cell["edge"]["largest_batch"]
        assert (fits[largest], fits[largest + 1]) == (True, False)
    assert made["wanted"]["fits"] is False
    assert made["wanted"]["plan"]
    for entry in made["wanted"]["plan"]:
        batch, micro = entry["change"].get("batch_size", 1024), entry["change"].get("gradient_accumulation_steps", 1)
        assert entry["fits"]
        assert batch * micro == 1024


def test_the_report_of_the_file_is_what_was_printed(run: Any, saved: Any, no_torch: dict[str, str]) -> None:
    done, path = saved
    assert run("report", path, **no_torch).stdout == done.stdout


def test_the_file_is_no_list_of_tensors_and_may_be_broken(run: Any, saved: Any, tmp_path: Path) -> None:
    top = run("report", saved[1], "--top", 3)
    assert top.returncode == 2
    assert "is a fit" in top.stderr
    broken = tmp_path / "broken.json"
    made = document(run, saved[1])
    made["cells"][0]["edge"]["largest_batch"] += 7
    broken.write_text(json.dumps(made), encoding="utf-8")
    refused = run("report", broken)
    assert refused.returncode == 5
    assert "broken fit" in refused.stderr


def test_a_batch_that_fits_as_it_is(run: Any) -> None:
    done = run(*TINY, "-b", 2, "--gradient-accumulation-steps", 2, "--json", "-q")
    wanted = json.loads(done.stdout)["wanted"]
    assert (wanted["effective_batch"], wanted["batch_size"], wanted["fits"], wanted["plan"]) == (4, 2, True, [])
    assert done.stderr == ""


def test_the_smallest_card_of_those_named(run: Any) -> None:
    model = ("--model", "prajjwal1/bert-tiny", "-s", 64, "-b", 7000)
    done = run("fit", *model, "--gpus", "T4,RTX2060", "--json")
    made = json.loads(done.stdout)
    jsonschema.Draft202012Validator(json.loads(run("schema", "fit").stdout)).validate(made)
    assert [row["gpu"] for row in made["cards"]] == ["RTX2060", "T4"]
    assert made["smallest_card"] == "T4"
    small, large = made["cards"]
    assert len(small["settings"]) == 4
    assert len(large["settings"]) == 1
    assert small["edge"]["largest_batch"] < 7000 <= large["edge"]["largest_batch"]
    assert not made["cells"]


def test_a_card_that_nothing_fits_is_told_at_batch_1(run: Any) -> None:
    done = run("fit", "--model", "prajjwal1/bert-tiny", "--gpu", "T4", "--memory", "170 MiB", "--lengths", "32")
    assert done.returncode == 0
    assert done.stdout.startswith("Not even batch 1 fits at 32 tokens: ")
    assert "1 does not fit" in done.stdout
