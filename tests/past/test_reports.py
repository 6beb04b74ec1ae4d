"""Public reports of memory that ran out, and their invented kin: settings in, cause and lever out."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from memdoctor.checklist.causes import cause_of
from memdoctor.checklist.looking import runs
from memdoctor.rules import RULES, Evidence, check_all
from memdoctor.units import GIB

FOLDER = Path(__file__).parent
REPORTS = FOLDER.parents[1] / "shared" / "data" / "oom_reports.jsonl"
_ALSO = FOLDER.parents[2] / "shared" / "data" / "oom_reports.jsonl"  # beside the checkout

Facts = Mapping[str, Any]


def _read(name: str) -> dict[str, Any]:
    with (FOLDER / name).open("rb") as file:
        return tomllib.load(file)


DATA, KIN = _read("reports.toml"), _read("kin.toml")
CASES: list[Facts] = [*DATA["case"], *KIN["case"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_report_comes_out_right(
    case: Facts, evidence_for: Callable[[Facts], Evidence], amount: Callable[[int | str], int]
) -> None:
    evidence, expected = evidence_for(case), case["expected"]
    checked = check_all(RULES, evidence)
    found = {finding.id: finding for finding in checked.findings}
    assert set(expected.get("found", ())) <= found.keys()
    assert set(expected.get("absent", ())) <= set(checked.passed)  # looked for, and not there
    assert {name: found[name].severity for name in expected.get("severity", {})} == expected.get("severity", {})
    if "first" in expected:
        assert checked.findings[0].id == expected["first"]
    for name, figures in expected.get("evidence", {}).items():
        assert {key: found[name].evidence[key] for key in figures} == {
            key: value if isinstance(value, bool) else amount(value) for key, value in figures.items()
        }
    for name, words in expected.get("says", {}).items():
        assert words in found[name].detail
    _check_outcome(evidence, expected, amount)
    _check_changes(case, evidence, amount)


def _check_outcome(evidence: Evidence, expected: Facts, amount: Callable[[int | str], int]) -> None:
    if "fits" in expected:
        assert evidence.fits == expected["fits"]
    if "cause" in expected:
        cause = cause_of(evidence)
        assert cause is not None
        assert cause.kind == expected["cause"]
    if "static_gib" in expected:
        assert round(evidence.static_bytes / GIB, 1) == expected["static_gib"]
    if "at_most" in expected:
        assert evidence.peak.reserved_bytes <= amount(expected["at_most"])
    for tensor in expected.get("tensors", ()):
        shape = tuple(map(int, tensor["shape"].split("x")))
        sizes = {block.bytes for block in evidence.examination.timeline.blocks if block.shape == shape}
        assert amount(tensor["bytes"]) in sizes
    stopped, at = expected.get("stopped", {}), evidence.ran_out
    if stopped:
        assert at is not None
        assert at.phase == stopped["phase"]
        assert stopped.get("op", "") in at.op
        if "requested" in stopped:
            assert at.requested_bytes == amount(stopped["requested"])
        assert stopped.get("says", "") in at.message


def _check_changes(case: Facts, evidence: Evidence, amount: Callable[[int | str], int]) -> None:
    for probe in case.get("probes", ()):
        other = evidence.changed(probe["change"])
        assert other is not None
        if "fits" in probe:
            assert runs(other) == probe["fits"], probe
    for name, wanted in case["expected"].get("levers", {}).items():
        lever = evidence.lever(name)
        assert lever is not None
        assert lever.saves_bytes is not None
        if "fits" in wanted:
            assert lever.fits == wanted["fits"], name
        assert lever.saves_bytes >= amount(wanted.get("at_least", 0)) or "at_most" in wanted, name
        if "at_most" in wanted:
            assert lever.saves_bytes <= amount(wanted["at_most"]), name
        assert wanted.get("says", "") in lever.sentence


def test_every_kind_of_report_has_kin_that_is_no_report() -> None:
    kinds = {case["kind"] for case in DATA["case"]}
    assert {case["kind"] for case in KIN["case"]} == kinds


def test_every_report_is_a_case_or_says_why_not() -> None:
    path = next((path for path in (REPORTS, _ALSO) if path.exists()), None)
    if path is None:
        pytest.skip("the file of reports, shared/data/oom_reports.jsonl, is not in this checkout")
    reports = {json.loads(line)["id"]: json.loads(line)["url"] for line in path.read_text("utf-8").splitlines()}
    told = {case["id"].partition("-")[0]: case["source"] for case in DATA["case"]}
    left_out = {entry["id"]: entry["source"] for entry in DATA["left_out"]}
    assert told | left_out == reports
    assert not told.keys() & left_out.keys()
    assert all(entry["why"] for entry in DATA["left_out"])
    assert len(told) >= 25
