"""Charts as numbers: what is left out, and what never is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, strategies as st

from memdoctor.records import Category
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
