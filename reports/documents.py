"""Reports as JSON documents: the contract that scripts rely on, its schema, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memdoctor import __version__
from memdoctor.analysis import breakdown_of, peak_of, phases_of
from memdoctor.codec import (
    ExaminationFields,
    examination_from_json,
    examination_to_json,
    from_json,
    json_schema,
    to_json,
)
from memdoctor.errors import InputError
from memdoctor.records import Breakdown, Diagnosis, Examination, Peak, PhaseUse, Verification
from memdoctor.storage import SCHEMA_VERSION, read_document


@dataclass(frozen=True, slots=True)
class _ExaminationDocument(ExaminationFields):
    """What is saved of an examination: the evidence, and what follows from it."""

    peak: Peak
    breakdown: Breakdown
    phases: tuple[PhaseUse, ...]


KINDS = ("diagnosis", "examination", "verification")


def diagnosis_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """The whole diagnosis as JSON values; bytes are integers, keys are only ever added."""
    return {**_envelope("diagnosis"), **to_json(diagnosis)}


def read_diagnosis(path: Path, conclude: Callable[[Examination], Diagnosis]) -> Diagnosis:
    """The diagnosis in a saved file; that of an examination is what ``conclude`` says of it.

    Raises:
        InputError: not there, broken, of another kind, or written by a newer memdoctor.
    """
    document = read_document(path)
    try:
        match document["kind"]:
            case "diagnosis":
                return from_json(Diagnosis, document)
            case "examination":
                return conclude(examination_from_json(document))
    except ValueError as error:
        raise InputError(f"{path} is a broken {document['kind']}", why=str(error)) from error
    raise InputError(f"{path} cannot be reported", why=f"it is a {document['kind']}", hint="a diagnosis or examination")


def read_report(path: Path, conclude: Callable[[Examination], Diagnosis]) -> Diagnosis | Verification:
    """As :func:`read_diagnosis`, and the verification in a file that holds one.

    Raises:
        InputError: as there.
    """
    document = read_document(path)
    if document["kind"] != "verification":
        return read_diagnosis(path, conclude)
    try:
        return from_json(Verification, document)
    except ValueError as error:
        raise InputError(f"{path} is a broken verification", why=str(error)) from error


def verification_document(verification: Verification) -> dict[str, Any]:
    """The whole verification as JSON values, and ``passed``: whether no check failed."""
    return {**_envelope("verification"), "passed": verification.passed, **to_json(verification)}


def examination_document(examination: Examination) -> dict[str, Any]:
    """An examination as the file to save: the evidence and, for other programs, its peak and where the bytes are."""
    derived = {
        "peak": to_json(peak_of(examination)),
        "breakdown": to_json(breakdown_of(examination)),
        "phases": [to_json(phase) for phase in phases_of(examination)],
    }
    return {**_envelope("examination"), **derived, **examination_to_json(examination)}


def schema(kind: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of the documents of this kind, one of :data:`KINDS`."""
    made = json_schema(
        {"diagnosis": Diagnosis, "examination": _ExaminationDocument, "verification": Verification}[kind]
    )
    tool = {"name": {"const": "memdoctor"}, "version": {"type": "string"}}
    envelope = {
        "schema_version": {"const": SCHEMA_VERSION},
        "tool": {"type": "object", "properties": tool, "required": list(tool)},
        "kind": {"const": kind},
    }
    if kind == "verification":
        envelope["passed"] = {"type": "boolean"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "properties": {**envelope, **made["properties"]},
        "required": [*envelope, *made["required"]],
    }


def _envelope(kind: str) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "tool": {"name": "memdoctor", "version": __version__}, "kind": kind}
