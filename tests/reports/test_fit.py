"""What fits, as it is printed: the answer first, tables that fit a terminal, and every number said to be probed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import (
    CardRow,
    Device,
    Edge,
    Fit,
    FitCell,
    Peak,
    Plan,
    Provenance,
    SettingFit,
    Trial,
    Wanted,
    Workload,
)
from memdoctor.reports.fit import print_fit

MIB = 1 << 20
GIB = 1 << 30
PROVENANCE = Provenance(
    mode="simulated", memdoctor="0.1.0", torch="2.13.0", transformers="5.24.0", python="3.11.7",
    created="2030-01-01T00:00:00+00:00", model_source="by hand", attention_kernels=("memory-efficient",), seconds=0.5,
)  # fmt: skip
CARD = Device(
    name="Card", total_bytes=10 * GIB, compute_capability="7.5", context_bytes=GIB, context_error_bytes=10 * MIB,
    context_source="by hand", source="by hand",
)  # fmt: skip


def peak(reserved: int) -> Peak:
    """A peak of which only what is reserved is told."""
    return Peak(
        allocated_bytes=MIB, max_memory_allocated_bytes=MIB, reserved_bytes=reserved, device_bytes=reserved + GIB,
        phase="backward", step=2,
    )  # fmt: skip


def edge(largest: int, reserved: int = 8 * GIB, predicted: int | None = None) -> Edge:
    """Batch ``largest`` fits and one more does not."""
    trials = [Trial(batch_size=largest, fits=True, peak=peak(reserved))] if largest else []
    trials.append(Trial(batch_size=largest + 1, fits=False, peak=peak(11 * GIB)))
    at = largest if predicted is None else predicted
    return Edge(largest_batch=largest or None, predicted_batch=at, capped=False, trials=tuple(trials))


TABLE = Fit(
    workload=Workload(model="by-hand", seq_length=512),
    device=CARD,
    provenance=PROVENANCE,
    cells=(
        FitCell(change={}, seq_length=128, edge=edge(40)),
        FitCell(change={}, seq_length=512, edge=edge(0)),
        FitCell(change={"gradient_checkpointing": True}, seq_length=128, edge=edge(90, predicted=80)),
        FitCell(change={"gradient_checkpointing": True}, seq_length=512, edge=edge(12)),
    ),
    assumed=("batch_size 8",),
)
PLAN = Plan(
    change={"batch_size": 4, "gradient_accumulation_steps": 2}, why="batch 4 x 2 micro-batches: saves 1.00 GiB",
    peak=peak(8 * GIB), fits=True, saves_bytes=GIB, time_cost="1.10 x the step time (estimated)", numerics="same",
    patch={}, cost="time", step_time=1.1,
)  # fmt: skip
ASKED = Wanted(
    effective_batch=8, batch_size=8, gradient_accumulation_steps=1, seq_length=512, fits=False, peak=peak(12 * GIB)
)
SMALL = CardRow(
    gpu="Small", total_bytes=5 * GIB, compute_capability="7.5", edge=edge(0),
    settings=(
        SettingFit(change={}, fits=False, peak=peak(6 * GIB), headroom_bytes=-2 * GIB),
        SettingFit(change={"gradient_checkpointing": True}, fits=True, peak=peak(GIB), headroom_bytes=3 * GIB),
        SettingFit(change={"precision": "fp16"}, fits=False, peak=None, headroom_bytes=None, why_not="no such cast"),
    ),
)  # fmt: skip
LARGE = CardRow(
    gpu="Large", total_bytes=10 * GIB, compute_capability="7.5", edge=edge(12),
    settings=(SettingFit(change={}, fits=True, peak=peak(6 * GIB), headroom_bytes=3 * GIB),),
)  # fmt: skip


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The lines of the view at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def show(fit: Fit) -> list[str]:
        print_fit(fit)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        return lines

    return show


def test_the_answer_comes_first_and_says_that_it_is_simulated(shown: Any) -> None:
    lines = shown(TABLE)
    assert lines[0].startswith("Largest batch at 512 tokens 0 as given, 12 with checkpointing: ")
    assert "simulated" in " ".join(lines[:3])


def test_a_table_has_a_row_a_setting_and_a_column_a_length(shown: Any) -> None:
    rows = [line.split("  ") for line in shown(TABLE)]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert ["largest batch", "128 tokens", "512 tokens"] in cells
    assert ["as given", "40 (8.00 GiB)", "1 does not fit"] in cells
    assert ["checkpointing", "90 (8.00 GiB)", "12 (8.00 GiB)"] in cells


def test_what_was_checked_is_said(shown: Any) -> None:
    text = " ".join(" ".join(shown(TABLE)).split())
    assert "both probed directly" in text
    assert "3 of 4 as predicted" in text
    assert "may fit again" in text


def test_where_nothing_fits_the_first_line_says_so(shown: Any) -> None:
    cells = tuple(replace(cell, edge=edge(0)) for cell in TABLE.cells)
    assert shown(replace(TABLE, cells=cells))[0].startswith("Not even batch 1 fits at 512 tokens: ")


def test_a_cell_that_could_not_be_probed_says_why(shown: Any) -> None:
    refused = replace(TABLE.cells[2], edge=None, why_not="this model has no checkpointing")
    lines = shown(replace(TABLE, cells=(*TABLE.cells[:2], refused, TABLE.cells[3])))
    assert "not     checkpointing: this model has no checkpointing" in lines
    assert any(line.startswith("checkpointing") and "not probed" in line for line in lines)


def test_the_largest_batch_ever_probed_has_a_plus(shown: Any) -> None:
    most = Edge(
        largest_batch=64, predicted_batch=64, capped=True, trials=(Trial(batch_size=64, fits=True, peak=peak(GIB)),)
    )
    lines = shown(replace(TABLE, cells=(replace(TABLE.cells[0], edge=most),)))
    assert "Largest batch at 128 tokens 64+ as given" in lines[0]
    assert "larger batches are not probed" in " ".join(" ".join(lines).split())


def test_a_wanted_batch_is_answered_with_the_cheapest_plan(shown: Any) -> None:
    lines = shown(replace(TABLE, wanted=replace(ASKED, plan=(PLAN,) * 6)))
    text = " ".join(" ".join(lines).split())
    assert text.startswith("Effective batch 8 at 512 tokens fits with batch 4 x 2 micro-batches: by-hand")
    assert "1.10 x the step time (estimated) [costs time]" in text
    assert "and 2 more: --json" in text
    assert len(lines) <= 25


def test_a_wanted_batch_that_fits_needs_no_plan(shown: Any) -> None:
    lines = shown(replace(TABLE, wanted=replace(ASKED, fits=True)))
    assert lines[0].startswith("Effective batch 8 at 512 tokens fits as it is: ")
    assert not any(line.startswith("plan") for line in lines)


def test_a_wanted_batch_that_nothing_makes_fit_has_its_smallest_footprint(shown: Any) -> None:
    lines = shown(replace(TABLE, wanted=replace(ASKED, smallest=PLAN)))
    assert lines[0].startswith("Effective batch 8 at 512 tokens does not fit, whatever was changed: ")
    assert any(line.startswith("least") for line in lines)


def test_the_smallest_card_is_the_answer_of_a_table_over_cards(shown: Any) -> None:
    both = replace(
        TABLE, cells=(), cards=(SMALL, LARGE), smallest_card="Large", smallest_card_changed="Small"
    )  # fmt: skip
    lines = shown(both)
    text = " ".join(" ".join(lines).split())
    assert text.startswith(
        "Smallest card for this of 2: Large (10.00 GiB) as it is, Small (5.00 GiB) with checkpointing: by-hand"
    )
    small = next(line for line in lines if line.startswith("Small "))
    assert "2.00 GiB short  checkpointing" in small
    assert "1 does not fit" in small
    assert "not     no such cast" in lines
    large = next(line for line in lines if line.startswith("Large "))
    assert "3.00 GiB free " in large
    assert large.rstrip().endswith("12")


def test_where_no_card_takes_it_as_it_is_or_at_all(shown: Any) -> None:
    only = replace(TABLE, cells=(), cards=(SMALL,), smallest_card_changed="Small")
    text = " ".join(" ".join(shown(only)).split())
    assert text.startswith("No card of 1 takes this as it is, the smallest otherwise is Small (5.00 GiB) with")
    none = replace(SMALL, settings=SMALL.settings[:1])
    assert shown(replace(TABLE, cells=(), cards=(none,)))[0].startswith("None of 1 cards takes this: ")


@pytest.mark.parametrize(
    ("largest", "trials"),
    [(5, {6: False}), (5, {5: False, 6: False}), (5, {5: True, 6: True}), (5, {5: True}), (None, {2: False})],
)
def test_an_edge_that_was_not_probed_on_both_sides_is_none(largest: int | None, trials: dict[int, bool]) -> None:
    made = tuple(Trial(batch_size=batch, fits=fits, peak=peak(GIB)) for batch, fits in trials.items())
    with pytest.raises(ValueError, match="was not found"):
        Edge(largest_batch=largest, predicted_batch=5, capped=False, trials=made)


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        (997, "does not fit in as few micro-batches as are tried, but batch 12 does: 11 x 84 = 924 is near"),
        (24, "does not fit, whatever was changed"),
    ],
)
def test_an_effective_batch_with_few_divisors_is_not_said_to_fit_never(
    capsys: pytest.CaptureFixture[str], wanted: int, answer: str
) -> None:
    asked = Wanted(
        effective_batch=wanted, batch_size=wanted, gradient_accumulation_steps=1, seq_length=512, fits=False,
        peak=peak(11 * GIB),
    )  # fmt: skip
    cells = (FitCell(change={}, seq_length=512, edge=edge(12)),)
    print_fit(replace(TABLE, cells=cells, wanted=asked))
    assert answer in " ".join(capsys.readouterr().out.split())
