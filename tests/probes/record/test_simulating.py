"""Recordings beside their simulations: what is asked of the simulated probe, and what it cannot answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from memdoctor.errors import InputError, MeasureError, MemdoctorError
from memdoctor.probes.pool import Request
from memdoctor.probes.record.files import save
from memdoctor.probes.record.simulating import compare_all, request_of
from memdoctor.records import Examination

Recording = Callable[..., Examination]


def test_the_same_workload_is_simulated_on_the_recorded_card_for_as_many_steps(recording: Recording) -> None:
    recorded = recording()
    request = request_of(recorded)
    assert (request.workload, request.device, request.steps) == (recorded.workload, recorded.device, 1)
    assert request.facts.source.startswith("catalogue: bert-base-uncased")


def test_each_file_is_beside_its_simulation(recording: Recording, tmp_path: Path) -> None:
    files = [tmp_path / "h200-a.json.gz", tmp_path / "h200-b.json.gz"]
    for file, kept in zip(files, (600, 2000), strict=True):
        save(file, recording(kept=kept), force=False)

    def simulate(requests: Sequence[Request]) -> Sequence[Examination | MemdoctorError]:
        assert len(requests) == 2
        return [recording(kept=600), MeasureError("the model asks for data")]

    first, second = compare_all(files, simulate)
    assert (first.name, first.same_outcome) == ("h200-a", True)
    assert {row.difference for row in first.rows if row.what != "device"} == {0}
    assert (second.name, second.simulated) == ("h200-b", "not simulated: the model asks for data")
    assert second.rows == ()


def test_a_file_that_is_no_recording_is_told(tmp_path: Path) -> None:
    (tmp_path / "h200-a.json.gz").write_bytes(b"no")
    with pytest.raises(InputError, match=r"h200-a\.json\.gz is broken"):
        compare_all([tmp_path / "h200-a.json.gz"], lambda requests: [])
