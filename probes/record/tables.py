"""Simulated against measured as Markdown, CSV and JSON: pure functions of the comparisons."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memdoctor.codec import to_json
from memdoctor.probes.record.comparison import CellComparison, Kind, Row, Summary, summarize, worst_first
from memdoctor.probes.record.overhead import Overhead
from memdoctor.storage import envelope

_HEADS = (Kind.ALLOCATED, Kind.RESERVED, Kind.DEVICE)
_MOST_SHORT = 5


def document(
    comparisons: Sequence[CellComparison], cells: Sequence[Mapping[str, Any]], overheads: Sequence[Overhead] = ()
) -> dict[str, Any]:
    """Everything, for programs: bytes are integers, errors percent, ``null`` is unknown."""
    return {
        **envelope("comparison"),
        "summary": [to_json(summary) for summary in summarize(comparisons)],
        "recordings": [
            {**to_json(comparison), "rows": [_row(row) for row in comparison.rows]} for comparison in comparisons
        ],
        "cells": list(cells),
        "overheads": [to_json(overhead) for overhead in overheads],
    }


def _row(row: Row) -> dict[str, Any]:
    return {**to_json(row), "difference": row.difference, "error_percent": row.error}


def as_csv(comparisons: Iterable[CellComparison]) -> str:
    """A line a figure, with a head; an empty field is unknown."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["recording", "kind", "figure", "recorded", "simulated", "difference", "error_percent"])
    for comparison in comparisons:
        for row in comparison.rows:
            figures = (row.recorded, row.simulated, row.difference, row.error)
            writer.writerow([comparison.name, row.kind.value, row.what, *figures])
    return text.getvalue()


def markdown(
    comparisons: Sequence[CellComparison], cells: Sequence[Mapping[str, Any]], overheads: Sequence[Overhead] = ()
) -> str:
    """For people: the summary, every recording with the worst first, what differs in each, and what is missing."""
    ordered = worst_first(comparisons)
    parts = [
        ["# Simulated against measured", "", *_opening(comparisons)],
        ["## Summary", "", *_summary(comparisons)],
        ["## Recordings, worst first", "", *_cells(ordered)],
        ["## What differs", "", *_differences(ordered)],
        ["## Notes", "", *_notes(ordered)],
        ["## Not recorded", "", *_missing(cells)],
        *([["## What recording costs", "", *_overheads(overheads)]] if overheads else []),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def short(comparisons: Sequence[CellComparison]) -> str:
    """For the terminal: the summary and the worst."""
    worst = [
        f"  {comparison.name}: {'; '.join(text) or comparison.simulated}"
        for comparison in worst_first(comparisons)
        if (text := _told(comparison)) or not comparison.same_outcome
    ]
    lines = [f"{_counted(comparisons)}, simulated anew", *map(_sentence, summarize(comparisons))]
    return "\n".join([*lines, *(["worst:", *worst[:_MOST_SHORT]] if worst else [])])


def _counted(comparisons: Sequence[CellComparison]) -> str:
    return "1 recording" if len(comparisons) == 1 else f"{len(comparisons)} recordings"


def _sentence(summary: Summary) -> str:
    known = summary.cells - summary.unknown
    if not known:
        return f"  {summary.figure:<20} unknown"
    unknown = f", {summary.unknown} unknown" if summary.unknown else ""
    return (
        f"  {summary.figure:<20} {summary.exact} of {known} exact, {summary.too_little} too little{unknown}; "
        f"error median {_percent(summary.median_percent)}, largest {_percent(summary.largest_percent)}"
    )


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f} %"


def _told(comparison: CellComparison) -> list[str]:
    rows = [row for kind in _HEADS if (row := comparison.row(kind)) is not None and row.difference]
    return [f"{row.what} {_difference(row)}" for row in rows]


def _opening(comparisons: Sequence[CellComparison]) -> list[str]:
    cards = ", ".join(sorted({comparison.device.name for comparison in comparisons})) or "no GPU"
    same = sum(comparison.same_outcome for comparison in comparisons)
    return [
        f"{_counted(comparisons)} of {cards}; as simulated, {same} of them ended. Errors are simulated less",
        "measured, in percent of what was measured: negative is too little. The simulated bytes of the device have the",
        "context that the catalogue says. Categories are those at the peak.",
    ]


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    rows = [f"| {' | '.join(map(_in_a_field, line))} |" for line in lines]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *rows] if rows else ["None."]


def _in_a_field(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _summary(comparisons: Sequence[CellComparison]) -> list[str]:
    head = ("figure", "cells", "unknown", "exact", "too little", "median error", "largest error", "largest, bytes")
    return _table(
        head,
        (
            (
                summary.figure, str(summary.cells), str(summary.unknown), str(summary.exact), str(summary.too_little),
                _percent(summary.median_percent), _percent(summary.largest_percent), _bytes(summary.largest_bytes),
            )
            for summary in summarize(comparisons)
        ),
    )  # fmt: skip


def _cells(comparisons: Iterable[CellComparison]) -> list[str]:
    head = ["recording", "outcome"]
    for kind in _HEADS:
        head += [f"{kind.value}, measured", "error"]
    return _table(
        head, ([comparison.name, _outcome(comparison), *_head_figures(comparison)] for comparison in comparisons)
    )


def _outcome(comparison: CellComparison) -> str:
    return comparison.recorded if comparison.same_outcome else f"{comparison.recorded}, but {comparison.simulated}"


def _head_figures(comparison: CellComparison) -> list[str]:
    cells = []
    for kind in _HEADS:
        row = comparison.row(kind)
        cells += ["", ""] if row is None else [_bytes(row.recorded), _difference(row)]
    return cells


def _bytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"


def _difference(row: Row) -> str:
    """``exact``, or bytes and percent."""
    if row.difference is None:
        return "unknown"
    if row.difference == 0:
        return "exact"
    return f"{row.difference:+,} B" + ("" if row.error is None else f" ({row.error:+.3f} %)")


def _differences(comparisons: Iterable[CellComparison]) -> list[str]:
    return _table(
        ("recording", "figure", "measured", "simulated", "error"),
        (
            (comparison.name, row.what, _bytes(row.recorded), _bytes(row.simulated), _difference(row))
            for comparison in comparisons
            for row in comparison.rows
            if row.kind not in _HEADS and row.difference != 0
        ),
    )


def _notes(comparisons: Iterable[CellComparison]) -> list[str]:
    """A note once, with the recordings that it is about."""
    about: dict[str, list[str]] = {}
    for comparison in comparisons:
        for note in comparison.notes:
            about.setdefault(note, []).append(comparison.name)
    return [f"- {note} ({_names(names)})" for note, names in about.items()] or ["None."]


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} recordings, first {names[0]}"


def _missing(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    return _table(
        ("cell", "", "why"),
        (
            (str(cell.get("cell")), str(cell.get("state")), str(cell.get("reason")))
            for cell in cells
            if not str(cell.get("state")).startswith("recorded")
        ),
    )


def _overheads(overheads: Iterable[Overhead]) -> list[str]:
    """What each step took more with the recording than without."""
    return _table(
        ("cell", "allocated", "reserved", "host memory"),
        (
            (
                overhead.cell, f"{overhead.allocated_bytes:+,} B", f"{overhead.reserved_bytes:+,} B",
                f"{overhead.host_bytes:+,} B ({overhead.host_percent:+.1f} %)",
            )
            for overhead in overheads
        ),
    )  # fmt: skip
