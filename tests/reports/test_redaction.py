"""Nothing private is in any format: it is planted in every text of a report, and looked for in all that is written."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from memdoctor.cli import output
from memdoctor.records import Diagnosis, Timeline
from memdoctor.reports.documents import diagnosis_document
from memdoctor.reports.formats import FORMATS
from memdoctor.reports.redaction import Private, redact, redacted_text


def _at(path: str) -> str:
    """An absolute path; written so, no file of ours names one."""
    return f"/{path}"


SECRETS = (
    _at("home/alice/projects/secret/train.py"), "~/secret/model", r"C:\Users\bob\secret\model.bin", "file:///srv/secret/x",
    "carol@buildhost42.internal", "./secret-model/checkpoint-100", _at("mnt/data/secret set/"),
)  # fmt: skip
PRIVATE = Private(users=("dave",), hosts=("workstation7",), models=("models/secret-bert",))
PLANTED = " ".join([*SECRETS, "dave on workstation7 ran models/secret-bert; alice and bob too"])
GONE = re.compile(rb"alice|bob\b|carol|dave|secret|buildhost|workstation7|/mnt|/home|/srv|C:.Users", re.IGNORECASE)
_STAYS = {
    "mode", "status", "severity", "verdict", "numerics", "cost", "time_kind", "id", "method", "metric",
    "compute_capability",
}  # fmt: skip


def planted(value: Any) -> Any:
    """The record with secrets in every text of it: also in what is added to the records later."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return f"{value} {PLANTED}"
    if isinstance(value, Timeline):
        blocks = (replace(value.blocks[0], module=PLANTED, op=PLANTED), *value.blocks[1:])
        return replace(value, blocks=blocks)
    if isinstance(value, tuple):
        return tuple(map(planted, value))
    if isinstance(value, Mapping):
        return {name: planted(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        kept = {item.name: getattr(value, item.name) for item in fields(value)}
        return replace(value, **{name: planted(part) for name, part in kept.items() if name not in _STAYS})
    return value


@pytest.fixture(scope="module")
def clean(real: Diagnosis) -> Diagnosis:
    """The report with secrets everywhere, after they were taken out."""
    made = redact(planted(real), PRIVATE)
    assert isinstance(made, Diagnosis)
    return made


def test_what_is_planted_is_everywhere(real: Diagnosis) -> None:
    text = json.dumps(diagnosis_document(planted(real)))
    assert text.count("workstation7") > 200


@pytest.mark.parametrize("one", [one for one in FORMATS if Diagnosis in one.renderers], ids=lambda one: one.suffix)
def test_nothing_private_is_in_any_format(clean: Diagnosis, one: Any) -> None:
    written = one.renderers[Diagnosis](clean, diagnosis_document(clean))
    text = gzip.decompress(written) if written.startswith(b"\x1f\x8b") else written
    assert [found[0] for found in GONE.finditer(text)] == []


def test_nothing_private_is_on_the_terminal(clean: Diagnosis, capsys: pytest.CaptureFixture[str]) -> None:
    from memdoctor.cli.showing import show_diagnosis

    show_diagnosis(clean, top=20, details=True, checklist=True)
    assert [found[0] for found in GONE.finditer(capsys.readouterr().out.encode())] == []


def test_the_same_thing_is_always_called_the_same(clean: Diagnosis) -> None:
    told = clean.provenance.notes or (clean.provenance.model_source,)
    words = re.findall(r"<(?:path|user|host|local model)(?: \d+)?>", clean.workload.model)
    assert words
    assert re.findall(r"<(?:path|user|host|local model)(?: \d+)?>", told[0]) == words


def test_figures_shapes_and_names_of_modules_stay(real: Diagnosis) -> None:
    same = redact(real, PRIVATE)
    assert same == real


@pytest.mark.parametrize(
    "text", ["bert-base-uncased", "google/electra-small", "1/2 of it", "a / b", "encoder.layer.*", "n/a"]
)
def test_what_is_no_path_stays(text: str) -> None:
    assert redacted_text(text) == text


def test_a_long_timeline_is_not_walked_entry_by_entry(real: Diagnosis) -> None:
    assert real.timeline is not None
    assert redact(real, PRIVATE).timeline is real.timeline


def test_a_report_that_is_not_redacted_is_the_same(real: Diagnosis) -> None:
    assert output.shown_of(real, redact=False) is real


def test_a_local_model_is_told_by_its_being_there(
    real: Diagnosis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    local = replace(real, workload=replace(real.workload, model="mine"))
    assert output.shown_of(local, redact=True).workload.model == "<local model>"
