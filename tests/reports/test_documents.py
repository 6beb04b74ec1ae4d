"""JSON documents: the contract, its schema, and the way back."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import memdoctor
from memdoctor.doctor import conclude
from memdoctor.errors import InputError
from memdoctor.records import Diagnosis, Examination
from memdoctor.reports.documents import (
    KINDS,
    diagnosis_document,
    examination_document,
    read_diagnosis,
    read_report,
    schema,
)
from memdoctor.storage import write_document


def valid(document: Any, kind: str) -> bool:
    """Whether the schema of this kind takes the document as a file holds it."""
    stored = json.loads(json.dumps(document, allow_nan=False))
    return jsonschema.Draft202012Validator(schema(kind)).is_valid(stored)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_a_schema_and_the_same_each_time(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(kind))
    assert schema(kind) == schema(kind)
    json.dumps(schema(kind), allow_nan=False)


def test_documents_are_valid_against_their_schema_and_not_the_others(
    diagnosis: Diagnosis, examination: Examination
) -> None:
    documents = {"diagnosis": diagnosis_document(diagnosis), "examination": examination_document(examination)}
    assert [(name, kind) for name, document in documents.items() for kind in KINDS if valid(document, kind)] == [
        ("diagnosis", "diagnosis"),
        ("examination", "examination"),
    ]


def test_what_is_concluded_from_an_examination_is_valid(examination: Examination) -> None:
    document = diagnosis_document(conclude(examination))
    assert valid(document, "diagnosis")
    assert document["scaling"] is None
    assert document["toggles"] == document["findings"] == document["plan"] == document["budgets"] == []


def test_the_envelope_says_what_it_is_and_who_wrote_it(diagnosis: Diagnosis, examination: Examination) -> None:
    for kind, document in (
        ("diagnosis", diagnosis_document(diagnosis)),
        ("examination", examination_document(examination)),
    ):
        assert list(document)[:3] == ["schema_version", "tool", "kind"]
        assert (document["schema_version"], document["kind"]) == (1, kind)
        assert document["tool"] == {"name": "memdoctor", "version": memdoctor.__version__}


def test_rendering_is_a_function_of_the_diagnosis(diagnosis: Diagnosis) -> None:
    before = copy.deepcopy(diagnosis)
    first, second = diagnosis_document(diagnosis), diagnosis_document(copy.deepcopy(diagnosis))
    assert json.dumps(first) == json.dumps(second)
    first["workload"]["model"] = "changed"
    assert diagnosis == before


def test_rendering_an_examination_is_a_function_too(examination: Examination) -> None:
    assert json.dumps(examination_document(examination)) == json.dumps(examination_document(copy.deepcopy(examination)))


@pytest.mark.parametrize("key", ["schema_version", "tool", "kind", "workload", "peak", "breakdown", "verdict"])
def test_a_document_without_a_required_key_is_not_valid(diagnosis: Diagnosis, key: str) -> None:
    document = diagnosis_document(diagnosis)
    del document[key]
    assert not valid(document, "diagnosis")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), 2),
        (("kind",), "check"),
        (("tool", "name"), "another"),
        (("peak", "allocated_bytes"), "1 GiB"),
        (("peak", "allocated_bytes"), 1.5),
        (("breakdown", "free"), None),
        (("workload", "precision"), "fp8"),
        (("verdict", "fits"), 1),
        (("toggles", 0, "change"), []),
        (("phases",), {}),
    ],
    ids=str,
)
def test_a_document_with_a_wrong_value_is_not_valid(
    diagnosis: Diagnosis, path: tuple[str | int, ...], value: Any
) -> None:
    document: Any = json.loads(json.dumps(diagnosis_document(diagnosis)))
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    assert not valid(document, "diagnosis")


def test_keys_of_later_versions_are_valid(diagnosis: Diagnosis, examination: Examination) -> None:
    for kind, document in (
        ("diagnosis", diagnosis_document(diagnosis)),
        ("examination", examination_document(examination)),
    ):
        document["later"] = 1
        document["peak"]["later"] = 1
        assert valid(document, kind)


def test_an_examination_carries_its_peak_for_other_programs(examination: Examination) -> None:
    document = examination_document(examination)
    assert document["peak"]["allocated_bytes"] == 700
    assert sum(document["breakdown"].values()) == examination.device.total_bytes
    assert [phase["name"] for phase in document["phases"]] == ["setup", "forward", "backward"]
    assert "timeline" in document


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_saved_diagnosis_is_read_without_concluding_anew(diagnosis: Diagnosis, tmp_path: Path, name: str) -> None:
    write_document(tmp_path / name, diagnosis_document(diagnosis), force=False)
    assert read_diagnosis(tmp_path / name, lambda _: pytest.fail("there is nothing to conclude")) == diagnosis


def test_a_saved_examination_is_concluded_from(examination: Examination, diagnosis: Diagnosis, tmp_path: Path) -> None:
    seen = []
    write_document(tmp_path / "a.json", examination_document(examination), force=False)

    def concluded(read: Examination) -> Diagnosis:
        seen.append(read)
        return diagnosis

    assert read_diagnosis(tmp_path / "a.json", concluded) is diagnosis
    assert seen == [examination]


def test_derived_figures_in_a_saved_examination_are_not_believed(examination: Examination, tmp_path: Path) -> None:
    """The evidence counts: a peak that someone edited changes nothing."""
    document = examination_document(examination)
    document["peak"]["allocated_bytes"] = 1
    write_document(tmp_path / "a.json", document, force=False)
    assert read_diagnosis(tmp_path / "a.json", conclude).peak.allocated_bytes == 700


@pytest.mark.parametrize("read", [read_diagnosis, read_report])
@pytest.mark.parametrize("kind", ["check", "explanation", "", None, 1, [], {}])
def test_another_kind_cannot_be_reported(tmp_path: Path, kind: Any, read: Any) -> None:
    path = tmp_path / "a.json"
    write_document(path, {"schema_version": 1, "kind": kind}, force=False)
    wrong = "is no diagnosis" if isinstance(kind, str) else "is not a memdoctor file"
    with pytest.raises(InputError, match=wrong) as caught:
        read(path, conclude)
    assert str(path) in caught.value.what


def test_a_diagnosis_that_does_not_add_up_is_refused(diagnosis: Diagnosis, tmp_path: Path) -> None:
    document = diagnosis_document(diagnosis)
    document["breakdown"]["activations"] += 1
    write_document(tmp_path / "a.json", document, force=False)
    with pytest.raises(InputError, match="broken diagnosis") as caught:
        read_diagnosis(tmp_path / "a.json", conclude)
    assert "sum" in caught.value.why


def test_the_command_line_has_every_kind() -> None:
    from memdoctor.cli import schema as command

    assert command.KINDS == KINDS
