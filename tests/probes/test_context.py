"""The context is what a process holds beside its allocator; what cannot be is unknown, never negative."""

from __future__ import annotations

import pytest

from memdoctor.probes.context import PAGE_BYTES, Context, context_of
from memdoctor.probes.seen import GpuProcess, MemoryReading, ProcessState, Unknown

MIB = 1 << 20
GIB = 1 << 30


def process(pid: int, used: int | None) -> GpuProcess:
    """Somebody on the card."""
    return GpuProcess(pid, "python", used, ProcessState.ALIVE)


def reading(used: int, *others: GpuProcess, own: int | None = None) -> MemoryReading:
    """A card with 15 GiB."""
    return MemoryReading(15 * GIB, used, own, others)


def measured(before: MemoryReading, after: MemoryReading, reserved: int) -> Context:
    """The context, which there must be."""
    context = context_of(before, after, reserved)
    assert isinstance(context, Context), context.reason
    return context


def test_by_pid_it_is_the_process_less_what_is_reserved() -> None:
    before, after = reading(4 * GIB, process(7, 4 * GIB)), reading(9 * GIB, process(7, 8 * GIB), own=1124 * MIB)
    assert measured(before, after, 1000 * MIB) == Context(
        124 * MIB, PAGE_BYTES, "measured: process bytes by pid less reserved"
    )


@pytest.mark.parametrize("own", [999 * MIB, 1000 * MIB])
def test_a_process_that_holds_no_more_than_is_reserved_is_impossible(own: int) -> None:
    context = context_of(reading(0), reading(own, own=own), 1000 * MIB)
    assert isinstance(context, Unknown)
    assert str(own) in context.reason


def test_on_an_idle_card_it_is_the_difference() -> None:
    context = measured(reading(3 * MIB), reading(1127 * MIB), 1000 * MIB)
    assert (context.context_bytes, context.error_bytes) == (124 * MIB, PAGE_BYTES + 3 * MIB)
    assert "by difference" in context.source
    assert "may have moved" in context.source


def test_what_others_took_meanwhile_is_theirs() -> None:
    before = reading(5 * GIB, process(7, 4 * GIB), process(8, GIB))
    after = reading(7 * GIB + 124 * MIB, process(7, 6 * GIB), process(8, GIB))
    assert measured(before, after, 0).context_bytes == 124 * MIB
    gone = reading(5 * GIB + 124 * MIB, process(7, 4 * GIB), process(9, GIB + 124 * MIB))
    assert measured(before, gone, GIB).context_bytes == 124 * MIB
    assert measured(before, gone, GIB).error_bytes == PAGE_BYTES


def test_the_process_itself_under_another_number_is_not_taken_off() -> None:
    context = measured(reading(0), reading(1124 * MIB, process(4711, 1124 * MIB)), 1000 * MIB)
    assert (context.context_bytes, context.error_bytes) == (124 * MIB, PAGE_BYTES)


@pytest.mark.parametrize("others", [Unknown("no permission"), (process(7, None),)])
def test_others_who_are_no_longer_told_of_have_not_gone(others: tuple[GpuProcess, ...] | Unknown) -> None:
    before = reading(50 * MIB, process(7, 50 * MIB))
    after = MemoryReading(15 * GIB, 1174 * MIB, None, others)
    context = measured(before, after, 1000 * MIB)
    assert (context.context_bytes, context.error_bytes) == (124 * MIB, PAGE_BYTES + 50 * MIB)


def test_of_two_newcomers_one_may_be_in_the_figure() -> None:
    after = reading(1174 * MIB, process(4711, 1124 * MIB), process(4712, 50 * MIB))
    assert measured(reading(0), after, 1000 * MIB) == Context(
        174 * MIB, PAGE_BYTES + 50 * MIB, measured(reading(0), after, 1000 * MIB).source
    )


def test_what_nobody_is_known_to_hold_is_an_error_up_to_all_of_it() -> None:
    before, after = reading(9 * GIB), reading(9 * GIB + 1124 * MIB)
    assert measured(before, after, 1000 * MIB).error_bytes == PAGE_BYTES + 124 * MIB
    unlisted = MemoryReading(15 * GIB, 50 * MIB, None, Unknown("not supported"))
    assert measured(unlisted, reading(1174 * MIB), 1000 * MIB).error_bytes == PAGE_BYTES + 50 * MIB


@pytest.mark.parametrize("used_after", [1000 * MIB, 2 * GIB, 3 * GIB])
def test_a_difference_that_leaves_no_room_is_impossible(used_after: int) -> None:
    assert isinstance(context_of(reading(2 * GIB), reading(used_after), GIB), Unknown)
