"""The time of a step: by hand, monotone in the work, and the facts that everybody knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from memdoctor.records import Dtype, Examination, PhaseName, PhaseWork, Precision, Rates, StepTime
from memdoctor.steptime import BEST, TYPICAL, WORST, estimate, relative, step_time

FORWARD, BACKWARD, OPTIMIZER = PhaseName.FORWARD, PhaseName.BACKWARD, PhaseName.OPTIMIZER
RATES = Rates(fp32_tflops=10.0, fp16_tflops=80.0, bf16_tflops=None, bandwidth_gb_s=500.0, source="made up")
FP32, HALF = 10.0 * 1e12 * TYPICAL.fp32, 80.0 * 1e12 * TYPICAL.half
MEMORY = 500.0 * 1e9 * TYPICAL.bandwidth
FLOPS, BYTES = 10**12, 10**9


def work(name: PhaseName, step: int = 2, **counted: int) -> PhaseWork:
    return PhaseWork(step=step, name=name, **counted)


@pytest.fixture
def with_work(new_recording: Any) -> Any:
    """An examination whose phases had this work."""

    def build(*phases: PhaseWork, repeated: int = 0, seconds: float | None = None, **workload: Any) -> Examination:
        tape = new_recording()
        for phase in phases or (work(FORWARD),):
            tape.phase(phase.step, phase.name.value)
            tape.birth(8)
        made: Examination = tape.examination(**workload)
        return replace(made, work=phases, repeated_micro_steps=repeated, step_seconds=seconds)

    return build


def test_products_take_as_long_as_their_arithmetic_or_their_memory(with_work: Any) -> None:
    computing = with_work(work(FORWARD, fp32_flops=FLOPS, product_bytes=BYTES, other_bytes=BYTES))
    assert estimate(computing, RATES).seconds == FLOPS / FP32 + BYTES / MEMORY
    moving = with_work(work(FORWARD, fp32_flops=FLOPS, product_bytes=100 * BYTES))
    assert estimate(moving, RATES).seconds == 100 * BYTES / MEMORY


def test_phases_follow_one_another(with_work: Any) -> None:
    two = with_work(work(FORWARD, other_bytes=BYTES), work(BACKWARD, fp32_flops=FLOPS), work(OPTIMIZER))
    assert estimate(two, RATES).seconds == BYTES / MEMORY + FLOPS / FP32


def test_a_step_takes_no_less_than_launching_its_kernels(with_work: Any) -> None:
    small = with_work(work(FORWARD, other_bytes=8, kernels=600), work(BACKWARD, kernels=400))
    assert estimate(small, RATES).seconds == TYPICAL.launch_seconds * 1000
    assert estimate(small, RATES).high_seconds == WORST.launch_seconds * 1000


def test_only_the_last_step_counts_without_setup_and_evaluation(with_work: Any) -> None:
    phases = [
        work(PhaseName.SETUP, 0, other_bytes=BYTES), work(FORWARD, 1, other_bytes=BYTES),
        work(FORWARD, 2, fp32_flops=FLOPS), work(PhaseName.EVALUATION, 2, fp32_flops=FLOPS),
    ]  # fmt: skip
    assert estimate(with_work(*phases), RATES).seconds == FLOPS / FP32


def test_the_last_micro_step_counts_for_those_that_were_left_out(with_work: Any) -> None:
    phases = [
        work(FORWARD, fp32_flops=1 * FLOPS), work(BACKWARD, fp32_flops=2 * FLOPS),
        work(FORWARD, fp32_flops=3 * FLOPS), work(BACKWARD, fp32_flops=4 * FLOPS),
        work(OPTIMIZER, fp32_flops=5 * FLOPS),
    ]  # fmt: skip
    made = with_work(*phases, repeated=10, gradient_accumulation_steps=12)
    assert estimate(made, RATES).seconds == pytest.approx((1 + 2 + 11 * 3 + 11 * 4 + 5) * FLOPS / FP32, rel=1e-12)


@pytest.mark.parametrize(
    ("workload", "rate"),
    [
        ({"precision": Precision.FP16}, HALF),
        ({"precision": Precision.BF16}, FP32),  # this card has no rate for it
        ({"dtype": Dtype.FLOAT16}, HALF),
        ({"dtype": Dtype.BFLOAT16}, FP32),
    ],
)
def test_16_bits_run_at_their_own_rate(with_work: Any, workload: dict[str, Any], rate: float) -> None:
    assert estimate(with_work(work(FORWARD, half_flops=FLOPS), **workload), RATES).seconds == FLOPS / rate


def test_what_was_measured_comes_first(with_work: Any) -> None:
    phases = (work(FORWARD, fp32_flops=FLOPS),)
    measured = StepTime(seconds=0.25, low_seconds=0.25, high_seconds=0.25, kind="measured")
    assert step_time(with_work(*phases, seconds=0.25), RATES) == measured
    assert step_time(with_work(*phases), RATES) == estimate(with_work(*phases), RATES)
    assert step_time(with_work(*phases), None) is None
    assert step_time(with_work(), RATES) is None


def test_without_work_there_is_no_estimate(with_work: Any) -> None:
    with pytest.raises(ValueError, match="not counted"):
        estimate(with_work(), RATES)


def test_in_a_ratio_the_shared_efficiency_cancels(with_work: Any) -> None:
    once, twice = (with_work(work(FORWARD, fp32_flops=times * FLOPS)) for times in (1, 2))
    ratio = relative(twice, once, RATES)
    assert (ratio.low, ratio.value, ratio.high) == (2, 2, 2)


def test_where_it_does_not_cancel_the_band_is_that_of_the_ends(with_work: Any) -> None:
    computing = with_work(work(FORWARD, fp32_flops=FLOPS))
    moving = with_work(work(FORWARD, other_bytes=BYTES))
    ratio = relative(moving, computing, RATES)
    one = BYTES / (500e9) / (FLOPS / 10e12)
    assert ratio.low == pytest.approx(one * WORST.fp32 / BEST.bandwidth, rel=1e-12)
    assert ratio.high == pytest.approx(one * BEST.fp32 / WORST.bandwidth, rel=1e-12)


COUNTS = st.fixed_dictionaries(
    {
        name: st.integers(0, 10**13)
        for name in ("fp32_flops", "half_flops", "product_bytes", "other_bytes", "kernels")
    }
)  # fmt: skip


@given(counted=COUNTS, more=COUNTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_more_work_never_takes_less_time(with_work: Any, counted: dict[str, int], more: dict[str, int]) -> None:
    larger = {name: counted[name] + more[name] for name in counted}
    less, greater = (estimate(with_work(work(FORWARD, **each)), RATES) for each in (counted, larger))
    assert less.seconds <= greater.seconds
    assert less.low_seconds <= greater.low_seconds
    assert less.high_seconds <= greater.high_seconds


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"repeated_micro_steps": 1}, "1 of 1 micro-steps"),
        ({"repeated_micro_steps": -1}, "-1 of 1 micro-steps"),
        ({"work": (work(BACKWARD),)}, "not those of its timeline"),
        ({"step_seconds": 0.0}, "took 0.0 s"),
    ],
)
def test_an_examination_that_does_not_add_up_is_refused(with_work: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(with_work(), **changes)
