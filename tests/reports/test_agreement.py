"""A measured step beside its counters and its simulation, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memdoctor.records import Comparison, CounterCheck, Peak
from memdoctor.reports.agreement import comparison_lines, counter_lines
from memdoctor.units import GIB, MIB

PEAK = Peak(
    allocated_bytes=GIB, max_memory_allocated_bytes=GIB, reserved_bytes=2 * GIB, device_bytes=3 * GIB, phase="forward",
    step=1,
)  # fmt: skip
EXACT = Comparison(
    change={}, measured=PEAK, simulated=PEAK, measured_fits=True, simulated_fits=True, allocated_error_percent=0.0,
    reserved_error_percent=0.0,
)  # fmt: skip


def check(name: str, counted: int, timeline: int, note: str = "") -> CounterCheck:
    return CounterCheck(
        name=name, counted_bytes=counted, timeline_bytes=timeline, difference_bytes=counted - timeline, note=note
    )


def test_counters_that_agree_take_one_line() -> None:
    checks = [check("max_memory_allocated", 3 * MIB, 3 * MIB), check("max_memory_reserved", 4 * MIB, 4 * MIB)]
    assert list(counter_lines(checks)) == ["3.00 MiB allocated and 4.00 MiB reserved at most, explained to the byte"]


def test_a_difference_is_a_line_of_its_own() -> None:
    checks = [check("max_memory_allocated", 1000, 1512, "it was reset"), check("max_memory_reserved", 4, 4)]
    assert list(counter_lines(checks)) == [
        "max_memory_allocated: 1,000 B counted, 1,512 B in the timeline, -512 B unexplained (it was reset)"
    ]


def test_what_nobody_owns_on_the_card_does_not_hide_that_pytorchs_counters_agree() -> None:
    exact = [check(name, MIB, MIB) for name in ("allocated", "reserved", "allocated at the end", "reserved at the end")]
    first, second = counter_lines([*exact, check("used on the card", 9 * MIB, 5 * MIB)])
    assert first.endswith("explained to the byte")
    assert "+4,194,304 B unexplained" in second


def test_nothing_counted_is_nothing_told() -> None:
    assert list(counter_lines([])) == []
    assert list(comparison_lines([])) == []


@pytest.mark.parametrize(
    ("error", "told"), [(0.0, "exact"), (2.5, "+2.500 %"), (-0.0004, "-4.0e-04 %"), (-12.3456, "-12.346 %")]
)
def test_the_target_is_shown_measured_beside_simulated(error: float, told: str) -> None:
    (line,) = comparison_lines([replace(EXACT, allocated_error_percent=error)])
    assert line == f"simulated 1.00 GiB allocated ({told}), 2.00 GiB reserved (exact)"


def test_a_step_that_ran_out_says_so_in_place_of_an_error() -> None:
    out = replace(EXACT, measured_fits=False, allocated_error_percent=None, reserved_error_percent=None)
    (line,) = comparison_lines([out])
    assert line == "measured up to where memory ran out; simulated 1.00 GiB allocated, 2.00 GiB reserved"
    (line,) = comparison_lines([replace(out, simulated_fits=False)])
    assert line.endswith("2.00 GiB reserved, out of memory")


def test_several_steps_are_summed_up() -> None:
    rows = [
        EXACT, replace(EXACT, change={"batch_size": 1}, reserved_error_percent=-3.0),
        replace(EXACT, change={"batch_size": 2}, reserved_error_percent=1.0),
        replace(
            EXACT, change={"seq_length": 512}, measured_fits=False, allocated_error_percent=None,
            reserved_error_percent=None,
        ),
    ]  # fmt: skip
    (line,) = comparison_lines(rows)
    assert line == (
        "simulated 1.00 GiB allocated (exact), 2.00 GiB reserved (exact); of 4 steps allocated exact in 3, "
        "reserved exact in 1 (worst -3.000 %), 1 end otherwise"
    )


def test_where_all_is_exact_that_is_all_that_is_told() -> None:
    (line,) = comparison_lines([EXACT, replace(EXACT, change={"batch_size": 1})])
    assert line.endswith("; all 2 steps exact")


def test_where_nothing_ran_to_its_end_there_is_nothing_to_count() -> None:
    out = replace(
        EXACT, measured_fits=False, simulated_fits=False, allocated_error_percent=None, reserved_error_percent=None
    )
    (line,) = comparison_lines([out, replace(out, change={"batch_size": 1})])
    assert line.endswith("of 2 steps none ran to its end")
