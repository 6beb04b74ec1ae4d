"""What recording costs: the arithmetic, and the child process where there is no GPU."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_standin import CudaStandIn

from memdoctor.catalogue import find_model
from memdoctor.errors import MeasureError, TooSlow
from memdoctor.probes import STEPS
from memdoctor.probes.gpu import run_watched
from memdoctor.probes.history import Totals
from memdoctor.probes.real import real_subject
from memdoctor.probes.record.grid import DEFAULT
from memdoctor.probes.record.overhead import Cost, How, Overhead, bare_peak, overhead_of, run_once
from memdoctor.records import Attention, Examination, Workload


def test_the_step_runs_both_ways() -> None:
    costs = {How.RECORDED: Cost(1000, 2000, 1050), How.BARE: Cost(999, 2000, 1000)}
    asked = []

    def once(workload: Workload, how: How) -> Cost:
        asked.append((workload, how))
        return costs[how]

    found = overhead_of(DEFAULT[0], once)
    assert asked == [(DEFAULT[0].workload, How.RECORDED), (DEFAULT[0].workload, How.BARE)]
    assert found == Overhead(DEFAULT[0].name, costs[How.RECORDED], costs[How.BARE])
    assert (found.allocated_bytes, found.reserved_bytes, found.host_bytes, found.host_percent) == (1, 0, 50, 5.0)


class Meter(CudaStandIn):
    """As CUDA's allocator is asked where no history is wanted."""

    def reset(self) -> None:
        self.begin()

    def totals(self) -> Totals:
        return self.end().totals


def test_the_bare_step_takes_what_the_recorded_one_takes() -> None:
    entry = find_model("google/bert_uncased_L-2_H-128_A-2")
    assert entry is not None
    config = {"model_type": entry.model_type, **entry.config}
    workload = Workload(model=entry.name, batch_size=2, seq_length=32, attention=Attention.EAGER)
    recorded = Meter()
    recorded.begin()
    totals = run_watched(recorded, real_subject(config, workload), workload, STEPS).history.totals
    assert bare_peak(Meter(), workload, config) == (totals.peak_allocated_bytes, totals.peak_reserved_bytes)


def test_a_child_that_fails_says_why(recording: Callable[..., Examination], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(MeasureError, match="the recorded step failed") as raised:
        run_once(DEFAULT[5].workload, How.RECORDED, device=recording().device, time_limit=60)
    assert raised.value.why


def test_a_child_that_hangs_is_ended(recording: Callable[..., Examination]) -> None:
    with pytest.raises(TooSlow, match=r"took longer than 0\.01 s") as raised:
        run_once(DEFAULT[5].workload, How.BARE, device=recording().device, time_limit=0.01)
    assert "--cell-time-limit" in raised.value.hint


@pytest.mark.parametrize("conf", ["", "max_split_size_mb:64"])
def test_a_child_has_the_settings_that_a_recording_has(
    recording: Callable[..., Examination], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conf: str
) -> None:
    """Settings of the allocator that the user exported are not those of recordings."""
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.setenv(name, "expandable_segments:True")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text(
        f"#!/bin/sh\nenv > {shlex.quote(str(tmp_path))}/env\n"
        """echo '{"allocated_bytes": 1, "reserved_bytes": 2, "host_bytes": 3}'\n"""
    )
    (tmp_path / "python").chmod(0o755)
    device = replace(recording().device, alloc_conf=conf)
    assert run_once(DEFAULT[5].workload, How.BARE, device=device, time_limit=60) == Cost(1, 2, 3)
    lines = (tmp_path / "env").read_text().splitlines()
    expected = ["PYTHONHASHSEED=0", *([f"PYTORCH_ALLOC_CONF={conf}"] if conf else [])]
    assert sorted(line for line in lines if "ALLOC_CONF=" in line or "HASHSEED=" in line) == expected
