"""The time of a step: measured after the recording, which it does not touch, and never a reason to fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cuda_standin import CudaStandIn

from memdoctor.probes import timing
from memdoctor.probes.job import Batch, Job
from memdoctor.probes.preparing import make_job
from memdoctor.probes.timing import MOST_SECONDS, STEPS_TIMED, seconds_of_step
from memdoctor.records import Workload


class Sum(torch.nn.Module):
    """Counts its calls, and fails at one of them."""

    def __init__(self, fails_at: int = 0, error: Exception | None = None) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.calls, self.fails_at, self.error = 0, fails_at, error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.error is not None and self.calls == self.fails_at:
            raise self.error
        return (self.weight * x).sum()


def job(model: Sum, **settings: Any) -> Job:
    def next_batch(rows: int) -> Batch:
        return {"x": torch.ones(rows, 3)}

    return make_job(Workload(model="toy", optimizer="sgd", **settings), model, "cpu", next_batch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each look at the clock is later by the next of these seconds, or by none."""
    ticks: list[float] = []
    now = 0.0

    def look() -> float:
        nonlocal now
        now += ticks.pop(0) if ticks else 0.0
        return now

    monkeypatch.setattr(timing, "perf_counter", look)
    return ticks


def test_it_is_the_median_of_steps_after_one_to_settle(clock: list[float]) -> None:
    # One look for the limit; then two a step, and one to see whether another fits in.
    clock += [0, 0, 3.0, 0, 0, 0.5, 0, 0, 0.25, 0, 0, 1.0, 0]
    model = Sum()
    assert seconds_of_step(job(model), CudaStandIn(), 1.0) == 0.5
    assert model.calls == 1 + STEPS_TIMED


def test_micro_steps_all_run_and_evaluation_does_not(clock: list[float]) -> None:
    del clock
    model = Sum()
    seconds_of_step(job(model, gradient_accumulation_steps=3, evaluate=True), CudaStandIn(), 1.0)
    assert model.calls == 3 * (1 + STEPS_TIMED)


def test_it_stops_where_time_is_up(clock: list[float]) -> None:
    clock += [0, 0, MOST_SECONDS / 3, 0, 0, MOST_SECONDS / 2, 0]
    model = Sum()
    assert seconds_of_step(job(model), CudaStandIn(), 1.0) == MOST_SECONDS / 2
    assert model.calls == 2


def test_one_step_that_takes_all_the_time_tells_nothing(clock: list[float]) -> None:
    clock += [0, 0, MOST_SECONDS]
    assert seconds_of_step(job(Sum()), CudaStandIn(), 1.0) is None


def test_long_steps_are_not_timed() -> None:
    model = Sum()
    assert seconds_of_step(job(model), CudaStandIn(), MOST_SECONDS + 1) is None
    assert model.calls == 0


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUDA error: fault")])
def test_an_error_is_no_failure(error: Exception) -> None:
    model = Sum(fails_at=3, error=error)
    assert seconds_of_step(job(model), CudaStandIn(), 1.0) is None
    assert model.calls == 3
