"""What recording costs: the arithmetic, and the child process where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.errors import MeasureError
from memdoctor.probes.record.grid import DEFAULT
from memdoctor.probes.record.overhead import Cost, How, Overhead, overhead_of, run_once
from memdoctor.records import Examination, Workload


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


def test_a_child_that_fails_says_why(recording: Callable[..., Examination], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(MeasureError, match="the recorded step failed") as raised:
        run_once(DEFAULT[5].workload, How.RECORDED, device=recording().device, time_limit=60)
    assert raised.value.why


def test_a_child_that_hangs_is_ended(recording: Callable[..., Examination]) -> None:
    with pytest.raises(MeasureError, match=r"took longer than 0\.01 s"):
        run_once(DEFAULT[5].workload, How.BARE, device=recording().device, time_limit=0.01)
