"""Reports as JSON documents: the contract that scripts rely on, its schema, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memdoctor.codec import (
    ExaminationFields,
    TimelineColumns,
    examination_from_json,
    from_json,
    json_schema,
    timeline_from_json,
    timeline_to_json,
    to_json,
)
from memdoctor.errors import InputError
from memdoctor.records import (
    Breakdown,
    Diagnosis,
    Difference,
    Examination,
    Explanation,
    Fit,
    Peak,
    PhaseUse,
    Verification,
)
from memdoctor.reports.text import cut
from memdoctor.storage import SCHEMA_VERSION, envelope, examination_document, read_document

__all__ = [
    "KINDS",
    "diagnosis_document",
    "difference_document",
    "document_of",
    "examination_document",
    "explanation_document",
    "fit_document",
    "read_diagnosis",
    "read_report",
    "schema",
    "verification_document",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExaminationDocument(ExaminationFields):
    """What is saved of an examination: the evidence, and what follows from it."""

    peak: Peak
    breakdown: Breakdown
    phases: tuple[PhaseUse, ...]


KINDS = ("diagnosis", "examination", "verification", "fit", "difference", "explanation")


def diagnosis_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """The whole diagnosis as JSON values; bytes are integers, keys are only ever added."""
    timeline = None if diagnosis.timeline is None else timeline_to_json(diagnosis.timeline)
    return {**envelope("diagnosis"), **to_json(replace(diagnosis, timeline=None)), "timeline": timeline}


def diagnosis_from_json(document: Mapping[str, Any]) -> Diagnosis:
    """The inverse of :func:`diagnosis_document`.

    Raises:
        ValueError: a part is missing, of the wrong type, or does not add up.
    """
    diagnosis = from_json(Diagnosis, {**document, "timeline": None})
    stored = document.get("timeline")
    return diagnosis if stored is None else replace(diagnosis, timeline=timeline_from_json(stored))


def read_diagnosis(path: Path, conclude: Callable[[Examination], Diagnosis]) -> Diagnosis:
    """The diagnosis in a saved file; that of an examination is what ``conclude`` says of it.

    Raises:
        InputError: not there, broken, of another kind, or written by a newer memdoctor.
    """
    return _diagnosis_in(path, read_document(path), conclude)


def _diagnosis_in(path: Path, document: Mapping[str, Any], conclude: Callable[[Examination], Diagnosis]) -> Diagnosis:
    try:
        match document["kind"]:
            case "diagnosis":
                return diagnosis_from_json(document)
            case "examination":
                return conclude(examination_from_json(document))
    except ValueError as error:
        raise InputError(f"{path} is a broken {document['kind']}", why=str(error)) from error
    raise InputError(
        f"{path} is no diagnosis and no examination", why=f"its kind is {cut(str(document['kind']), 60)}",
        hint="a file that memdoctor diagnose or probe saved",
    )  # fmt: skip


def read_report(
    path: Path, conclude: Callable[[Examination], Diagnosis]
) -> Diagnosis | Difference | Fit | Verification:
    """As :func:`read_diagnosis`, and the verification, the fit or the difference in a file that holds one.

    Raises:
        InputError: as there.
    """
    document = read_document(path)
    kind = document["kind"]
    if kind not in _OTHERS:
        return _diagnosis_in(path, document, conclude)
    try:
        found: object = from_json(_OTHERS[kind], document)
    except ValueError as error:
        raise InputError(f"{path} is a broken {kind}", why=str(error)) from error
    assert isinstance(found, Difference | Fit | Verification)
    return found


_OTHERS: dict[str, type] = {"verification": Verification, "fit": Fit, "difference": Difference}


_VERDICTS = {"verification": "passed", "difference": "same"}  # what is worked out and written too


def document_of(report: Diagnosis | Examination | Fit | Difference | Verification) -> dict[str, Any]:
    """The document of any kind of report."""
    makers: dict[type, Callable[[Any], dict[str, Any]]] = {
        Diagnosis: diagnosis_document,
        Examination: examination_document,
        Fit: fit_document,
        Difference: difference_document,
        Verification: verification_document,
    }
    return makers[type(report)](report)


def fit_document(fit: Fit) -> dict[str, Any]:
    """The whole table as JSON values."""
    return {**envelope("fit"), **to_json(fit)}


def difference_document(difference: Difference) -> dict[str, Any]:
    """What differs as JSON values, and ``same``: whether nothing does."""
    return {**envelope("difference"), "same": difference.same, **to_json(difference)}


def verification_document(verification: Verification) -> dict[str, Any]:
    """The whole verification as JSON values, and ``passed``: whether no check failed."""
    return {**envelope("verification"), "passed": verification.passed, **to_json(verification)}


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """What was explained as JSON values."""
    return {**envelope("explanation"), **to_json(explanation)}


def schema(kind: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of the documents of this kind, one of :data:`KINDS`."""
    records: dict[str, type] = {
        "diagnosis": Diagnosis,
        "examination": _ExaminationDocument,
        "explanation": Explanation,
        **_OTHERS,
    }
    made = json_schema(records[kind])
    tool = {"name": {"const": "memdoctor"}, "version": {"type": "string"}}
    every = {
        "schema_version": {"const": SCHEMA_VERSION},
        "tool": {"type": "object", "properties": tool, "required": list(tool)},
        "kind": {"const": kind},
    }
    if kind in _VERDICTS:
        every[_VERDICTS[kind]] = {"type": "boolean"}
    if kind == "diagnosis":
        columns = json_schema(TimelineColumns)
        made["$defs"] |= columns.pop("$defs")
        made["properties"]["timeline"] = {"anyOf": [columns, {"type": "null"}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "properties": {**every, **made["properties"]},
        "required": [*every, *made["required"]],
    }
