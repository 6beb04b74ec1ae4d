"""Entries of a plan: none is worse than another in all respects, the cheapest first, and each says its arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.planning import Clock, Found, Setting, Writer
from memdoctor.planning.entries import MOST_ENTRIES
from memdoctor.records import Change, Cost, Examination, PhaseName, PhaseWork, Rates

RATES = Rates(fp32_tflops=10.0, fp16_tflops=80.0, bf16_tflops=None, bandwidth_gb_s=500.0, source="made up")
MIB = 2**20
BATCH: Change = {"batch_size": 1, "gradient_accumulation_steps": 4}
CHECKPOINTING: Change = {"gradient_checkpointing": True}
FP16: Change = {"precision": "fp16"}


@pytest.fixture
def timed(holding: Callable[..., Examination]) -> Callable[..., Examination]:
    """So many bytes on a card of 9,000 for PyTorch, in a step of so many seconds by the made-up rates."""

    def make(size: int, seconds: float, **more: Any) -> Examination:
        made = holding({"activations": size}, **more)
        flops = round(seconds * 10.0 * 1e12 * 0.7)
        return replace(made, work=(PhaseWork(step=1, name=PhaseName.FORWARD, fp32_flops=flops),))

    return make


@pytest.fixture
def writer(timed: Any) -> Writer:
    """For a target of 9,500 bytes and one second, which does not fit."""
    return Writer(timed(9_500, 1.0, fits=False), Clock(RATES), lambda change: {"cli": f"--{len(change)}"})


def found(change: Change, cost: Cost, examination: Examination) -> Found:
    """A setting that was probed."""
    return Found(Setting(change, cost, 1, 1), examination)


def test_an_entry_says_what_it_changes_saves_and_costs(writer: Writer, timed: Any) -> None:
    entry = writer.entry(found(CHECKPOINTING, "time", timed(6_000, 1.25)))
    assert (entry.change, entry.cost, entry.numerics, entry.fits) == (CHECKPOINTING, "time", "same", True)
    assert (entry.peak.reserved_bytes, entry.saves_bytes) == (6_000, 3_500)
    assert entry.step_time == pytest.approx(1.25)
    assert (entry.time_kind, entry.mode) == ("estimate", "simulated")
    assert entry.time_cost == "1.25 x the step time (estimate, 1.25 to 1.25)"
    assert entry.why == "checkpointing: saves 3.42 KiB, 2.93 KiB to spare; the peak is in forward"
    assert entry.patch == {"cli": "--1"}


def test_room_that_is_less_than_the_context_is_known_to_is_said(writer: Writer, timed: Any) -> None:
    close = "which is less than the context is known to"
    assert close in writer.entry(found(BATCH, "time", timed(8_991, 1.0))).why  # 9 B free, known to 10 B
    assert close not in writer.entry(found(BATCH, "time", timed(8_990, 1.0))).why
    over = writer.entry(found(BATCH, "time", timed(9_600, 1.0, fits=False)))
    assert over.why == (
        "batch 1 x 4 micro-batches: costs 100 B, 600 B too much; the peak is in forward; "
        "memdoctor probe --verify-accumulation checks the accumulated gradients"
    )
    assert (over.fits, over.saves_bytes) == (False, -100)


def test_measured_steps_are_compared_as_measured(writer: Writer, timed: Any) -> None:
    measured = replace(writer, target=replace(writer.target, step_seconds=2.0))
    entry = measured.entry(found(BATCH, "time", replace(timed(5_000, 9.0), step_seconds=3.0)))
    assert (entry.step_time, entry.time_cost) == (1.5, "1.50 x the step time (measured)")


def test_without_rates_no_time_is_told(writer: Writer, timed: Any) -> None:
    entry = replace(writer, clock=Clock(None)).entry(found(BATCH, "time", timed(5_000, 1.0)))
    assert (entry.step_time, entry.time_cost, entry.time_kind) == (None, "not estimated", "")


def test_what_costs_less_comes_first_and_then_what_is_faster(writer: Writer, timed: Any) -> None:
    half = found(FP16, "numerics", timed(7_000, 0.4))
    slow = found(CHECKPOINTING, "time", timed(4_000, 1.3))
    split = found(BATCH, "time", timed(8_000, 1.1))
    assert writer.front([half, slow, split]) == (split, slow, half)


def test_what_is_no_better_in_anything_is_left_out(writer: Writer, timed: Any) -> None:
    small = found(CHECKPOINTING, "time", timed(4_000, 1.1))
    larger = found({**CHECKPOINTING, **BATCH}, "time", timed(5_000, 1.2))
    dearer = found({**CHECKPOINTING, **FP16}, "numerics", timed(4_000, 1.1))
    assert writer.front([larger, dearer, small]) == (small,)


def test_of_two_that_are_equal_both_stay(writer: Writer, timed: Any) -> None:
    one = found(BATCH, "time", timed(5_000, 1.1))
    other = found(CHECKPOINTING, "time", timed(5_000, 1.1))
    assert set(map(id, writer.front([one, other]))) == {id(one), id(other)}


def test_a_plan_is_short(writer: Writer, timed: Any) -> None:
    many = [found({"seq_length": 512 - at}, "task", timed(8_000 >> at, 1.0 + at / 10)) for at in range(10)]
    assert writer.front(many) == tuple(many[:MOST_ENTRIES])


def test_of_one_structure_only_the_preferred_split_is_told(writer: Writer, timed: Any) -> None:
    two = found({"batch_size": 2, "gradient_accumulation_steps": 2}, "time", timed(6_000, 1.0))
    one = found(BATCH, "time", timed(3_000, 1.01))
    assert writer.front([one, two]) == (two,)


def test_what_changes_more_stands_behind_where_the_time_is_nearly_the_same(writer: Writer, timed: Any) -> None:
    eight_bit = found({"optimizer": "adamw_bnb_8bit"}, "numerics", timed(5_000, 1.0))
    plain = found({"optimizer": "sgd"}, "numerics", timed(4_000, 0.98))
    assert writer.front([plain, eight_bit]) == (eight_bit, plain)


def test_the_least_change_of_the_task_comes_first_however_fast_a_shorter_text_is(writer: Writer, timed: Any) -> None:
    target = replace(writer.target, workload=replace(writer.target.workload, seq_length=512))
    of_512 = replace(writer, target=target)
    quarter = found({**FP16, "seq_length": 128}, "task", timed(2_000, 0.1))
    half = found({**FP16, "seq_length": 256}, "task", timed(4_000, 0.3))
    frozen = found({**FP16, "freeze": ("*embeddings*",)}, "task", timed(8_000, 0.9))
    assert of_512.front([quarter, half, frozen]) == (frozen, half, quarter)
