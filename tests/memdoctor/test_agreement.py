"""Measured beside simulated and beside its counters, on a timeline of a few bytes."""

from __future__ import annotations

from dataclasses import replace

from memdoctor.agreement import RESET, compare, counters_of
from memdoctor.records import Counters, Examination, RanOut

EXACT = Counters(
    max_memory_allocated_bytes=3216, max_memory_reserved_bytes=3216, memory_allocated_bytes=1800,
    memory_reserved_bytes=3216, process_bytes=4216, listed_bytes=0, used_bytes=4216,
)  # fmt: skip
OUT = RanOut(requested_bytes=16, free_bytes=8, event=0)


def test_the_same_peaks_are_exact(two_steps: Examination) -> None:
    row = compare({"batch_size": 1}, two_steps, two_steps)
    assert row.change == {"batch_size": 1}
    assert (row.measured_fits, row.simulated_fits) == (True, True)
    assert (row.allocated_error_percent, row.reserved_error_percent) == (0.0, 0.0)


def test_an_error_is_in_percent_of_what_was_measured(two_steps: Examination) -> None:
    """Blocks of a quarter more, and 3216 bytes of them at the peak: 3216 to 4020."""
    timeline = two_steps.timeline
    blocks = tuple(
        replace(block, bytes=block.bytes * 5 // 4, allocated_bytes=block.bytes * 5 // 4) for block in timeline.blocks
    )
    events = tuple(replace(event, delta_bytes=event.delta_bytes * 5 // 4) for event in timeline.events)
    segments = tuple(replace(item, delta_bytes=item.delta_bytes * 5 // 4) for item in timeline.segments)
    larger = replace(two_steps, timeline=replace(timeline, blocks=blocks, events=events, segments=segments))
    assert compare({}, two_steps, larger).allocated_error_percent == 25.0
    assert compare({}, two_steps, larger).reserved_error_percent == 25.0
    assert compare({}, larger, two_steps).allocated_error_percent == -20.0


def test_a_run_that_ran_out_has_no_error_in_percent(two_steps: Examination) -> None:
    row = compare({}, replace(two_steps, outcome=OUT), two_steps)
    assert (row.measured_fits, row.simulated_fits) == (False, True)
    assert row.allocated_error_percent is None
    assert row.reserved_error_percent is None


def test_without_counters_there_is_nothing_to_hold_a_timeline_to(two_steps: Examination) -> None:
    assert counters_of(two_steps) == ()


def test_every_counter_is_held_to_the_timeline(two_steps: Examination) -> None:
    checks = counters_of(replace(two_steps, counters=EXACT))
    assert [(check.name, check.counted_bytes, check.difference_bytes) for check in checks] == [
        ("max_memory_allocated", 3216, 0), ("max_memory_reserved", 3216, 0), ("memory_allocated at the end", 1800, 0),
        ("memory_reserved at the end", 3216, 0), ("used on the card", 4216, 0),
    ]  # fmt: skip


def test_what_the_timeline_does_not_explain_is_a_figure_of_its_own(two_steps: Examination) -> None:
    counted = replace(EXACT, max_memory_allocated_bytes=3728, used_bytes=5000)
    checks = {check.name: check for check in counters_of(replace(two_steps, counters=counted))}
    assert checks["max_memory_allocated"].difference_bytes == 512
    assert checks["max_memory_allocated"].note == ""
    assert checks["used on the card"].difference_bytes == 784


def test_a_peak_below_the_timelines_was_reset(two_steps: Examination) -> None:
    counted = replace(EXACT, max_memory_allocated_bytes=2416)
    check = counters_of(replace(two_steps, counters=counted))[0]
    assert (check.difference_bytes, check.note) == (-800, RESET)


def test_the_request_that_was_refused_was_counted_by_nobody(two_steps: Examination) -> None:
    """Cut at the birth of the gradient of 400 bytes, which is the peak: before it 2816 were in use."""
    timeline = two_steps.timeline
    peak = max(range(len(timeline.events)), key=timeline.in_use().__getitem__)
    end = peak + 1
    phases = tuple(replace(phase, end=min(phase.end, end)) for phase in timeline.phases if phase.begin < end)
    cut = replace(timeline, events=timeline.events[:end], phases=phases)
    refused = replace(OUT, event=peak)
    counted = replace(EXACT, max_memory_allocated_bytes=3116)
    checks = counters_of(replace(two_steps, timeline=cut, outcome=refused, counters=counted))
    assert [(check.name, check.difference_bytes) for check in checks] == [
        ("max_memory_allocated", 0), ("max_memory_reserved", 0)
    ]  # fmt: skip
