"""Charts as numbers: what is left out, and what never is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, strategies as st

from memdoctor.doctor import conclude
from memdoctor.records import Category, Diagnosis
from memdoctor.reports.charts.allocator import AllocatorState, allocator_at_peak
from memdoctor.reports.charts.stack import stack_of
from memdoctor.reports.palette import COLOURS


def test_every_part_has_a_colour_of_its_own() -> None:
    assert {category.value for category in Category} < COLOURS.keys()
    assert len(set(COLOURS.values())) == len(COLOURS)


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=60), most=st.integers(1, 50))
def test_the_peak_and_the_ends_of_phases_are_always_among_what_is_shown(
    new_recording: Callable[[], Any], sizes: list[int], most: int
) -> None:
    tape = new_recording()
    tape.phase(0, "setup")
    kept = tape.birth(10, "parameters")
    tape.phase(1, "forward")
    activations = [tape.birth(size) for size in sizes]
    tape.phase(1, "backward")
    for block in reversed(activations):
        tape.death(block)
    tape.death(kept)
    timeline = tape.examination().timeline
    stack = stack_of(timeline, most)
    in_use = timeline.in_use()
    assert stack.of == len(in_use)
    assert stack.thinned == (len(stack.events) < len(in_use))
    assert {phase.end - 1 for phase in timeline.phases} | {stack.peak} <= set(stack.events)
    assert in_use[stack.peak] == max(in_use)
    summed = [sum(column[at] for column in stack.columns.values()) for at in range(len(stack.events))]
    assert summed == [in_use[event] for event in stack.events]
    assert len(stack.events) <= max(most, 1) + len(timeline.phases) + 1


def test_the_allocator_at_the_peak_adds_up(real: Diagnosis) -> None:
    state = allocator_at_peak(real)
    assert state is not None
    assert state.requested == real.peak.allocated_bytes
    assert state.requested + state.rounding + state.free_bytes == state.reserved
    assert state.reserved <= real.peak.reserved_bytes
    assert 0 < state.largest_free <= state.free_bytes
    assert state.free_blocks >= 1


def test_free_blocks_are_found_by_hand(new_recording: Callable[[], Any]) -> None:
    tape = new_recording()
    tape.phase(1, "forward")
    tape.reserve(10_000)  # the first block begins at 0, the second at 4096 by the builder's addresses
    first = tape.birth(1_000, allocated=1_024)
    tape.birth(2_000, allocated=2_048)
    tape.death(first)
    state = allocator_at_peak(conclude(tape.examination(total=20_000)))
    assert state == AllocatorState(
        segments=1, reserved=10_000, requested=3_000, rounding=72, free_bytes=6_928, free_blocks=2, largest_free=3_856
    )


def test_without_a_timeline_nothing_is_said_of_the_allocator(real: Diagnosis) -> None:
    assert allocator_at_peak(replace(real, timeline=None)) is None
