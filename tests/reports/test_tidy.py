"""CSV as pandas and spreadsheets read it."""

from __future__ import annotations

import copy
import csv
import io
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from memdoctor.records import Diagnosis, Difference, Examination
from memdoctor.reports.tidy import DIAGNOSIS_COLUMNS, DIFFERENCE_COLUMNS, diagnosis_csv, difference_csv


def frame_of(content: bytes) -> Any:
    """The table as pandas reads it."""
    return pd.read_csv(io.BytesIO(content), keep_default_na=True)


def test_a_diagnosis(diagnosis: Diagnosis, snapshot: SnapshotAssertion) -> None:
    assert diagnosis_csv(diagnosis).decode() == snapshot


def test_a_difference(difference: Difference, snapshot: SnapshotAssertion) -> None:
    assert difference_csv(difference).decode() == snapshot


def test_bytes_are_whole_numbers_that_sum_to_the_card(diagnosis: Diagnosis) -> None:
    frame = frame_of(diagnosis_csv(diagnosis))
    assert frame["bytes"].dtype == "int64"
    assert frame[frame["kind"] == "part"]["bytes"].sum() == diagnosis.device.total_bytes
    assert frame[frame["kind"] == "tensor"]["bytes"].tolist() == [group.bytes for group in diagnosis.tensors]
    toggles = frame[frame["kind"] == "toggle"].groupby("name")["bytes"].sum()
    assert set(toggles) == {diagnosis.device.total_bytes}


def test_parts_and_phases_of_an_examination_are_there(
    examination: Examination, conclude: Callable[[Examination], Diagnosis]
) -> None:
    frame = frame_of(diagnosis_csv(conclude(examination)))
    phases = frame[frame["kind"] == "phase_total"].set_index(["name", "category"])["bytes"]
    assert phases["forward", "peak"] == 700
    assert phases["backward", "end"] == 400
    assert frame[frame["kind"] == "module"]["bytes"].sum() == 700


def test_differences_are_those_of_b_less_a(difference: Difference) -> None:
    frame = frame_of(difference_csv(difference))
    known = frame[frame["a_bytes"].notna() & frame["b_bytes"].notna()]
    assert (known["b_bytes"] - known["a_bytes"] == known["delta_bytes"]).all()
    settings = frame[frame["kind"] == "setting"][["name", "a", "b"]].to_numpy().tolist()
    assert settings == [["torch", "2.11.0", "2.13.0"], ["batch_size", "2", "4"]]


@pytest.mark.parametrize("kind", ["hostile", "hostile_difference"])
def test_no_cell_is_a_formula_and_no_row_is_torn(kind: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(kind)
    make, columns = (diagnosis_csv, DIAGNOSIS_COLUMNS) if kind == "hostile" else (difference_csv, DIFFERENCE_COLUMNS)
    rows = list(csv.reader(io.StringIO(make(report).decode(), newline="")))
    assert tuple(rows[0]) == columns
    assert {len(row) for row in rows} == {len(columns)}
    cells = [cell for row in rows for cell in row]
    assert [cell for cell in cells if cell[:1] in "=+-@\t\r" and cell and not cell.lstrip("-").isdigit()] == []
    assert [cell for cell in cells if not cell.isprintable()] == []
    assert any(cell.startswith("'=1+1<script>") and len(cell) > 10_000 for cell in cells)


def test_the_same_report_is_the_same_bytes(diagnosis: Diagnosis, difference: Difference) -> None:
    assert diagnosis_csv(diagnosis) == diagnosis_csv(copy.deepcopy(diagnosis))
    assert difference_csv(difference) == difference_csv(copy.deepcopy(difference))
