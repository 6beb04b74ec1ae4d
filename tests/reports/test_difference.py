"""The terminal view and the document of a difference."""

from __future__ import annotations

import copy
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from syrupy.assertion import SnapshotAssertion

from memdoctor.difference import difference_of
from memdoctor.errors import InputError
from memdoctor.records import Diagnosis, Difference, Fit
from memdoctor.reports.difference import print_difference
from memdoctor.reports.documents import difference_document, fit_document, read_diagnosis, read_report, schema
from memdoctor.storage import write_document


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What is printed at a width."""

    def shown(difference: Difference, width: int = 100, top: int = 0) -> str:
        stream = io.StringIO()
        monkeypatch.setenv("COLUMNS", str(width))
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stream)
            print_difference(difference, top=top)
        return stream.getvalue()

    return shown


def test_the_verdict_is_first_then_that_the_environments_differ(
    view: Callable[..., str], difference: Difference
) -> None:
    lines = view(difference).splitlines()
    assert lines[0].startswith("B needs 350.00 MiB more than A (760.00 MiB -> 1.08 GiB reserved) and does not fit")
    note = next(number for number, line in enumerate(lines) if line.startswith("NOTE"))
    assert "The environments differ: torch 2.11.0 -> 2.13.0." in lines[note]
    assert note < next(number for number, line in enumerate(lines) if line.startswith("A  "))
    text = " ".join("\n".join(lines).split())
    for said in (
        "two.json: by-hand", "differs batch size 2 -> 4", "activations 350.00 MiB 700.00 MiB +350.00 MiB",
        "headroom 140.00 MiB -210.00 MiB -350.00 MiB", "7 x 4x128x51200 float32, was 7 x 2x128x51200",
    ):  # fmt: skip
        assert said in text, said


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_view_has_at_most_25_lines_and_keeps_to_the_width(
    view: Callable[..., str], difference: Difference, hostile_difference: Difference, width: int
) -> None:
    for one in (difference, hostile_difference):
        lines = view(one, width).splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) <= 25


def test_nothing_is_listed_where_nothing_differs(view: Callable[..., str], diagnosis: Diagnosis) -> None:
    text = view(difference_of(diagnosis, diagnosis))
    assert text.startswith("No difference: B needs what A needs (1.08 GiB reserved), byte for byte.\n")
    assert "peak    allocated" not in text


def test_top_lists_modules_and_tensors(view: Callable[..., str], difference: Difference) -> None:
    added = view(difference, top=1).removeprefix(view(difference))
    assert "+50.00 MiB net.layer.0.act: activations +50.00 MiB" in added
    assert "+350.00 MiB activations (net.layer.*.act, gelu)" in added


def test_names_from_files_cannot_command_the_terminal(view: Callable[..., str], hostile_difference: Difference) -> None:
    assert not set("\x1b\x00\u202e") & set(view(hostile_difference, top=9))


def test_a_document(difference: Difference, snapshot: SnapshotAssertion) -> None:
    document = difference_document(difference)
    document["tool"]["version"] = "any"
    assert json.dumps(document, indent=1, sort_keys=True) == snapshot


def test_a_document_is_valid_and_reads_back(
    difference: Difference, hostile_difference: Difference, tmp_path: Path
) -> None:
    for number, one in enumerate((difference, hostile_difference)):
        document = json.loads(json.dumps(difference_document(one), allow_nan=False))
        jsonschema.Draft202012Validator(schema("difference")).validate(document)
        write_document(tmp_path / f"{number}.json", document, force=False)
        assert read_report(tmp_path / f"{number}.json", lambda _: pytest.fail("no examination")) == one
    assert json.dumps(difference_document(difference)) == json.dumps(difference_document(copy.deepcopy(difference)))


def test_a_difference_is_nothing_to_compare(difference: Difference, tmp_path: Path) -> None:
    write_document(tmp_path / "a.json", difference_document(difference), force=False)
    with pytest.raises(InputError, match="is no diagnosis and no examination") as caught:
        read_diagnosis(tmp_path / "a.json", lambda _: pytest.fail("no examination"))
    assert caught.value.why == "its kind is difference"


def test_a_fit_is_nothing_to_compare(diagnosis: Diagnosis, tmp_path: Path) -> None:
    fit = Fit(workload=diagnosis.workload, device=diagnosis.device, provenance=diagnosis.provenance)
    write_document(tmp_path / "a.json", fit_document(fit), force=False)
    with pytest.raises(InputError) as caught:
        read_diagnosis(tmp_path / "a.json", lambda _: pytest.fail("no examination"))
    assert (caught.value.why, caught.value.hint) == ("its kind is fit", "a file that memdoctor diagnose or probe saved")
