"""Recordings of real GPUs, each beside a fresh simulation. Run with ``-s`` for the table of errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from memdoctor.catalogue import find_model
from memdoctor.probes.pool import Request
from memdoctor.probes.record.comparison import CellComparison, Kind, Row, compare
from memdoctor.probes.record.files import MOST_BYTES
from memdoctor.probes.record.simulating import compare_all, request_of
from memdoctor.probes.record.tables import short
from memdoctor.probes.simulated.probe import simulate
from memdoctor.records import Examination
from memdoctor.storage import load_examination

FOLDER = Path(__file__).parents[2] / "data" / "gpu"
RECORDINGS = sorted(FOLDER.glob("*.json.gz"))
NONE_YET = pytest.param(None, marks=pytest.mark.skip("no recording of a GPU is there yet"))
TINY = "google/bert_uncased_L-2_H-128_A-2"
# The device's bytes are reserved and a context that the catalogue knows to within a band.
EXACT = (Kind.ALLOCATED, Kind.RESERVED, Kind.PHASE)


def answer(requests: Sequence[Request]) -> list[Examination]:
    """Simulate in this process."""
    return [
        simulate(request.workload, request.device, request.facts.config, request.facts.source, request.steps)
        for request in requests
    ]


def beside_a_fresh_one(recorded: Examination) -> CellComparison:
    """An examination that is in no file, and its simulation."""
    (fresh,) = answer([request_of(recorded)])
    return compare("it", recorded, fresh)


def off(comparison: CellComparison) -> dict[str, int | None]:
    """The figures that should be exact and are not, with what is too much."""
    return {row.what: row.difference for row in comparison.rows if row.kind in EXACT and row.difference != 0}


@pytest.mark.parametrize("file", RECORDINGS or [NONE_YET], ids=lambda file: file and file.name)
def test_a_recording_is_what_is_simulated(file: Path) -> None:
    recorded = load_examination(file)
    assert recorded.provenance.mode == "measured"
    if recorded.provenance.torch.split("+")[0].split(".")[:2] != torch.__version__.split(".")[:2]:
        pytest.skip(f"recorded with torch {recorded.provenance.torch}")
    (comparison,) = compare_all([file], answer)
    print(short([comparison]))  # noqa: T201 - the table is what -s is asked for
    assert comparison.same_outcome
    assert off(comparison) == {}


@pytest.fixture(scope="module")
def tiny(probe: Callable[..., Examination]) -> Examination:
    """An examination as a recording would be, of a model that the catalogue knows."""
    entry = find_model(TINY)
    assert entry is not None
    examination = probe({"model_type": entry.model_type, **entry.config}, steps=1)
    return replace(examination, workload=replace(examination.workload, model=TINY))


def test_a_simulation_is_like_itself(tiny: Examination) -> None:
    comparison = beside_a_fresh_one(tiny)
    assert [row.what for row in comparison.rows if row.kind in EXACT] == [
        "allocated", "reserved", "step 0 setup", "step 1 forward", "step 1 backward", "step 1 clip", "step 1 optimizer",
        "step 1 zero_grad",
    ]  # fmt: skip
    assert {row.error for row in comparison.rows if row.what != "device"} == {0.0}
    assert off(comparison) == {}


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
    comparison = beside_a_fresh_one(recorded)
    phases = [row for row in comparison.rows if row.kind is Kind.PHASE]
    assert {row.difference for row in phases} == {-1000}
    assert comparison.row(Kind.ALLOCATED) == Row(
        Kind.ALLOCATED, "allocated", max(tiny.timeline.memory_allocated()) + 1024,
        max(tiny.timeline.memory_allocated()),
    )  # fmt: skip
    assert off(comparison)["allocated"] == -1024


def test_every_file_in_the_folder_is_a_recording() -> None:
    others: list[Any] = [path.name for path in FOLDER.iterdir() if path not in RECORDINGS]
    assert others == ["README.md"]
    assert [path.name for path in RECORDINGS if path.stat().st_size > MOST_BYTES] == []
