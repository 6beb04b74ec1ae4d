"""The tables, from figures by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memdoctor.probes.record.comparison import CellComparison, Kind, Row
from memdoctor.probes.record.overhead import Cost, Overhead
from memdoctor.probes.record.tables import as_csv, document, markdown, short
from memdoctor.records import Examination, Workload

Recording = Callable[..., Examination]
CELLS = [
    {"cell": "x", "state": "failed", "reason": "a | b\nc"},
    {"cell": "y", "state": "recorded", "reason": ""},
    {"cell": "z", "state": "recorded before", "reason": ""},
]
COST = Overhead("x", recorded=Cost(1000, 2000, 1040), bare=Cost(1000, 2000, 1000))


def two(recording: Recording) -> list[CellComparison]:
    device = recording().device
    exact = (
        Row(Kind.ALLOCATED, "allocated", 2560, 2560), Row(Kind.RESERVED, "reserved", 2000, 2000),
        Row(Kind.DEVICE, "device", None, 9000), Row(Kind.CATEGORY, "workspace", 0, 0),
    )  # fmt: skip
    off = (
        Row(Kind.ALLOCATED, "allocated", 1000, 990), Row(Kind.RESERVED, "reserved", 2000, 2500),
        Row(Kind.DEVICE, "device", 8000, 9000), Row(Kind.CATEGORY, "workspace", 0, 512),
    )  # fmt: skip
    return [
        CellComparison("h200-a", Workload(model="m"), device, "completed", "completed", exact, ("a note",)),
        CellComparison("h200-b", Workload(model="m"), device, "completed", "completed", off, ("a note", "another")),
    ]


def lines(text: str, head: str) -> list[str]:
    """The lines under a heading."""
    _, _, rest = text.partition(f"## {head}\n\n")
    return rest.partition("\n\n")[0].splitlines()


def test_the_summary_has_a_line_a_figure(recording: Recording) -> None:
    assert lines(markdown(two(recording), CELLS), "Summary") == [
        "| figure | cells | unknown | exact | too little | median error | largest error | largest, bytes |",
        "|---|---|---|---|---|---|---|---|",
        "| allocated | 2 | 0 | 1 | 1 | 0.500 % | 1.000 % | 10 |",
        "| reserved | 2 | 0 | 1 | 0 | 12.500 % | 25.000 % | 500 |",
        "| device | 2 | 1 | 0 | 0 | 12.500 % | 12.500 % | 1,000 |",
        "| workspace | 2 | 0 | 1 | 0 | 0.000 % | 0.000 % | 512 |",
    ]


def test_recordings_stand_worst_first_with_bytes_and_percent(recording: Recording) -> None:
    assert lines(markdown(two(recording), CELLS), "Recordings, worst first")[2:] == [
        "| h200-b | completed | 1,000 | -10 B (-1.000 %) | 2,000 | +500 B (+25.000 %) | 8,000 | +1,000 B (+12.500 %) |",
        "| h200-a | completed | 2,560 | exact | 2,000 | exact | unknown | unknown |",
    ]


def test_what_differs_is_listed_and_where_nothing_was_recorded_no_percent_is_made_up(recording: Recording) -> None:
    assert lines(markdown(two(recording), CELLS), "What differs")[2:] == ["| h200-b | workspace | 0 | 512 | +512 B |"]
    assert lines(markdown(two(recording)[:1], CELLS), "What differs") == ["None."]


def test_a_note_is_told_once_with_what_it_is_about(recording: Recording) -> None:
    assert lines(markdown(two(recording), CELLS), "Notes") == [
        "- a note (2 recordings, first h200-b)", "- another (h200-b)",
    ]  # fmt: skip


def test_what_was_not_recorded_is_told_with_its_reason(recording: Recording) -> None:
    assert lines(markdown(two(recording), CELLS), "Not recorded")[2:] == [r"| x | failed | a \| b c |"]


def test_another_outcome_is_told(recording: Recording) -> None:
    lost = CellComparison("h200-c", Workload(model="m"), recording().device, "completed", "not simulated: no", (), ())
    assert lines(markdown([lost], ()), "Recordings, worst first")[2:] == [
        "| h200-c | completed, but not simulated: no |  |  |  |  |  |  |"
    ]
    assert short([lost]).splitlines() == ["1 recording, simulated anew", "worst:", "  h200-c: not simulated: no"]


def test_what_recording_costs_is_told_where_it_was_looked_at(recording: Recording) -> None:
    assert lines(markdown(two(recording), CELLS, [COST]), "What recording costs")[2:] == [
        "| x | +0 B | +0 B | +40 B (+4.0 %) |"
    ]
    assert "What recording costs" not in markdown(two(recording), CELLS)


def test_the_spreadsheet_has_a_line_a_figure_and_leaves_the_unknown_empty(recording: Recording) -> None:
    found = as_csv(two(recording)).splitlines()
    assert found[0] == "recording,kind,figure,recorded,simulated,difference,error_percent"
    assert found[1] == "h200-a,allocated,allocated,2560,2560,0,0.0"
    assert found[3] == "h200-a,device,device,,9000,,"
    assert found[5] == "h200-b,allocated,allocated,1000,990,-10,-1.0"
    assert len(found) == 9


def test_the_document_has_everything(recording: Recording) -> None:
    found: dict[str, Any] = document(two(recording), CELLS, [COST])
    assert (found["kind"], found["cells"]) == ("comparison", CELLS)
    assert found["summary"][0] == {
        "figure": "allocated", "cells": 2, "unknown": 0, "exact": 1, "too_little": 1, "median_percent": 0.5,
        "largest_percent": 1.0, "largest_bytes": 10,
    }  # fmt: skip
    assert found["recordings"][1]["name"] == "h200-b"
    assert found["recordings"][1]["rows"][0] == {
        "kind": "allocated", "what": "allocated", "recorded": 1000, "simulated": 990, "difference": -10,
        "error_percent": -1.0,
    }  # fmt: skip
    assert found["overheads"][0]["recorded"]["host_bytes"] == 1040


def test_the_terminal_has_the_summary_and_the_worst(recording: Recording) -> None:
    assert short(two(recording)).splitlines() == [
        "2 recordings, simulated anew",
        "  allocated            1 of 2 exact, 1 too little; error median 0.500 %, largest 1.000 %",
        "  reserved             1 of 2 exact, 0 too little; error median 12.500 %, largest 25.000 %",
        "  device               0 of 1 exact, 0 too little, 1 unknown; error median 12.500 %, largest 12.500 %",
        "  workspace            1 of 2 exact, 0 too little; error median 0.000 %, largest 0.000 %",
        "worst:",
        "  h200-b: allocated -10 B (-1.000 %); reserved +500 B (+25.000 %); device +1,000 B (+12.500 %)",
    ]


def test_without_recordings_nothing_is_claimed() -> None:
    text = markdown([], ())
    assert "0 recordings of no GPU" in text
    assert lines(text, "Summary") == ["None."]
