"""Recordings of real GPUs, each beside a fresh simulation. Run with ``-s`` for the table of errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memdoctor.analysis import peak_of, phases_of
from memdoctor.catalogue import find_model
from memdoctor.doctor import load_examination
from memdoctor.probes.resolve import resolve_model
from memdoctor.probes.simulated.probe import simulate
from memdoctor.records import Examination

FOLDER = Path(__file__).parents[2] / "data" / "gpu"
RECORDINGS = sorted(FOLDER.glob("*.json.gz"))
NONE_YET = pytest.param(None, marks=pytest.mark.skip("no recording of a GPU is there yet"))
TINY = "google/bert_uncased_L-2_H-128_A-2"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a recording and of its simulation, in bytes."""

    what: str
    recorded: int
    simulated: int

    @property
    def error(self) -> float:
        """Percent of what was recorded; negative where the simulation says too little."""
        return 100 * (self.simulated - self.recorded) / self.recorded


def compare(recorded: Examination) -> list[Row]:
    """Every phase's peak of allocated bytes, and the peak of reserved ones."""
    facts = resolve_model(recorded.workload.model, offline=True)
    steps = max(phase.step for phase in recorded.timeline.phases)
    fresh = simulate(recorded.workload, recorded.device, facts.config, facts.source, steps)
    theirs, ours = phases_of(recorded), phases_of(fresh)
    assert [(use.step, use.name) for use in theirs] == [(use.step, use.name) for use in ours]
    phases = [
        Row(f"step {measured.step} {measured.name}", measured.peak_allocated_bytes, simulated.peak_allocated_bytes)
        for measured, simulated in zip(theirs, ours, strict=True)
    ]
    return [*phases, Row("reserved", peak_of(recorded).reserved_bytes, peak_of(fresh).reserved_bytes)]


def table(name: str, rows: list[Row]) -> str:
    """The rows as text."""
    lines = [f"  {row.what:<22} {row.recorded:>15,} {row.simulated:>15,} {row.error:+8.3f} %" for row in rows]
    return "\n".join([f"{name:<24} {'recorded':>15} {'simulated':>15} {'error':>8}", *lines])


@pytest.mark.parametrize("file", RECORDINGS or [NONE_YET], ids=lambda file: file and file.name)
def test_a_recording_is_what_is_simulated(file: Path) -> None:
    recorded = load_examination(file)
    if recorded.provenance.torch.split("+")[0].split(".")[:2] != torch.__version__.split(".")[:2]:
        pytest.skip(f"recorded with torch {recorded.provenance.torch}")
    rows = compare(recorded)
    print(table(file.name, rows))  # noqa: T201 - the table is what -s is asked for
    assert {row.what: row.error for row in rows if row.error} == {}


@pytest.fixture(scope="module")
def tiny(probe: Callable[..., Examination]) -> Examination:
    """An examination as a recording would be, of a model that the catalogue knows."""
    entry = find_model(TINY)
    assert entry is not None
    examination = probe({"model_type": entry.model_type, **entry.config}, steps=1)
    return replace(examination, workload=replace(examination.workload, model=TINY))


def test_a_simulation_is_like_itself(tiny: Examination) -> None:
    rows = compare(tiny)
    assert [row.what for row in rows] == [
        "step 0 setup", "step 1 forward", "step 1 backward", "step 1 clip", "step 1 optimizer", "step 1 zero_grad",
        "reserved",
    ]  # fmt: skip
    assert {row.error for row in rows} == {0.0}


def test_a_difference_is_told_with_its_sign(tiny: Examination) -> None:
    """One block that a real GPU would have had, and the simulation has not."""
    timeline = tiny.timeline
    first = timeline.blocks[0]
    larger = replace(first, bytes=first.bytes + 1000, allocated_bytes=first.allocated_bytes + 1024)
    events = tuple(
        replace(event, delta_bytes=event.delta_bytes + (1000 if event.delta_bytes > 0 else -1000))
        if event.block == 0
        else event
        for event in timeline.events
    )
    recorded = replace(tiny, timeline=replace(timeline, blocks=(larger, *timeline.blocks[1:]), events=events))
    rows = compare(recorded)
    assert all(row.recorded - row.simulated == 1000 for row in rows[:-1])
    assert all(row.error < 0 for row in rows[:-1])


def test_the_table_has_a_line_a_figure() -> None:
    text = table("a100-bert.json.gz", [Row("reserved", 2000, 1990)])
    assert text.splitlines()[1].split() == ["reserved", "2,000", "1,990", "-0.500", "%"]


def test_every_file_in_the_folder_is_a_recording() -> None:
    others: list[Any] = [path.name for path in FOLDER.iterdir() if path not in RECORDINGS]
    assert others == ["README.md"]
