"""``memdoctor compare`` as users meet it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memdoctor.doctor import conclude
from memdoctor.records import Examination, Fit
from memdoctor.reports.documents import diagnosis_document, fit_document
from memdoctor.storage import examination_document, write_document

USAGE, INPUT = 2, 5


@pytest.fixture
def before(two_steps: Examination, tmp_path: Path) -> Path:
    """A saved examination."""
    path = tmp_path / "before.json"
    write_document(path, examination_document(two_steps), force=False)
    return path


@pytest.fixture
def after(two_steps: Examination, tmp_path: Path) -> Path:
    """A saved diagnosis of the same with other processes on the card, by another torch."""
    device = replace(two_steps.device, other_processes_bytes=200)
    provenance = replace(two_steps.provenance, torch="2.14.1")
    path = tmp_path / "after.json.gz"
    other = conclude(replace(two_steps, device=device, provenance=provenance))
    write_document(path, diagnosis_document(other), force=False)
    return path


def test_an_examination_and_a_diagnosis_are_compared_without_torch(
    run: Any, before: Path, after: Path, no_torch: dict[str, str]
) -> None:
    done = run("compare", before, after, **no_torch)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert text.startswith("B needs as much as A (3.14 KiB reserved): other processes +200 B. NOTE The environments")
    assert "torch 2.13.0 -> 2.14.1" in text
    assert "before.json: by-hand" in text
    assert done.stderr == f"next: memdoctor compare {before} {after} -o difference.md\n"


def test_a_file_beside_itself_is_no_difference(run: Any, before: Path) -> None:
    done = run("compare", before, before)
    assert (done.returncode, done.stdout.partition(":")[0], done.stderr) == (0, "No difference", "")


def test_json_is_alone_on_standard_output(run: Any, before: Path, after: Path) -> None:
    done = run("compare", before, after, "--json")
    document = json.loads(done.stdout)
    assert (document["kind"], document["same"], done.stderr) == ("difference", False, "")
    assert {part["name"]: part["delta_bytes"] for part in document["parts"]}["other_processes"] == 200
    assert json.loads(run("compare", before, before, "--json").stdout)["same"]


def test_every_format_is_written_and_the_document_reported_again(
    run: Any, before: Path, after: Path, tmp_path: Path
) -> None:
    paths = [tmp_path / f"out{suffix}" for suffix in (".json", ".json.gz", ".md", ".csv")]
    done = run("compare", before, after, *(word for path in paths for word in ("-o", path)))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert paths[2].read_text(encoding="utf-8").startswith("### B needs as much as A")
    assert paths[3].read_text(encoding="utf-8").startswith("kind,name,category,a_bytes,")
    again = run("report", paths[0])
    assert again.stdout == run("compare", before, after).stdout
    assert run("report", paths[1], "--json").stdout == run("compare", before, after, "--json").stdout
    assert run("report", paths[0], "-o", tmp_path / "again.md").returncode == 0
    assert (tmp_path / "again.md").read_bytes() == paths[2].read_bytes()


def test_one_of_them_may_be_standard_input(before: Path, after: Path) -> None:
    command = [sys.executable, "-m", "memdoctor", "compare", "-", str(after), "-q"]
    done = subprocess.run(command, input=before.read_bytes(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"standard input: by-hand" in done.stdout


def test_files_of_one_name_are_told_by_their_folders(run: Any, before: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / before.name
    other.parent.mkdir()
    other.write_bytes(before.read_bytes())
    assert f"{str(other)[-10:]}: by-hand" in run("compare", before, other, COLUMNS="300").stdout


@pytest.mark.parametrize("place", [0, 1])
def test_a_fit_is_nothing_to_compare(
    run: Any, before: Path, two_steps: Examination, tmp_path: Path, place: int
) -> None:
    fit = tmp_path / "fit.json"
    made = Fit(workload=two_steps.workload, device=two_steps.device, provenance=two_steps.provenance)
    write_document(fit, fit_document(made), force=False)
    done = run("compare", *((fit, before) if place == 0 else (before, fit)))
    assert (done.returncode, done.stdout) == (INPUT, "")
    assert "why: its kind is fit" in done.stderr


def test_what_cannot_be_done_is_said_before_it_is_tried(run: Any, before: Path, tmp_path: Path) -> None:
    for arguments, code, said in (
        (("compare", before), USAGE, "Missing argument 'B'"),
        (("compare", before, tmp_path / "none.json"), INPUT, "there is no file"),
        (("compare", "-", "-"), USAGE, "standard input"),
        (("compare", before, before, "-o", before, "-f"), USAGE, "is read and cannot be written"),
        (("compare", before, before, "-o", tmp_path / "x.docx"), USAGE, ".md"),
        (("compare", before, before, "--top", "0"), USAGE, "--top"),
    ):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (code, "")
        assert said in done.stderr


def test_parts_of_a_diagnosis_are_not_asked_of_a_difference(run: Any, before: Path, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    assert run("compare", before, before, "-o", path).returncode == 0
    assert run("report", path, "--details").returncode == USAGE
    assert run("report", path, "--top", 2).returncode == 0


def test_a_diagnosis_is_written_as_markdown_and_csv(run: Any, before: Path, tmp_path: Path) -> None:
    done = run("report", before, "-o", tmp_path / "a.md", "-o", tmp_path / "a.csv")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.md").read_text(encoding="utf-8").startswith("### Fits")
    assert (tmp_path / "a.csv").read_text(encoding="utf-8").startswith("kind,name,category,bytes,")
