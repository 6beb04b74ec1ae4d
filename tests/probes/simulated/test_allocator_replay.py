"""Replays of births and deaths, worked out by hand."""

from __future__ import annotations

from array import array

import pytest

from memdoctor.probes.simulated.allocator.replay import RanOut, SegmentEvent, replay
from memdoctor.probes.simulated.allocator.segments import Segment
from memdoctor.probes.simulated.allocator.settings import AllocatorSettings
from memdoctor.records import Event

MIB = 1 << 20


def test_a_replay_worked_out_by_hand() -> None:
    result = replay([Event(7, 1000), Event(8, 13 * MIB), Event(7, -1000), Event(9, 512)])
    assert result.addresses == array("q", [0, 2 * MIB, 0, 0])
    assert result.allocated == array("q", [1024, 14 * MIB + 1024, 14 * MIB, 14 * MIB + 512])
    assert result.reserved == array("q", [2 * MIB, 16 * MIB, 16 * MIB, 16 * MIB])
    assert (result.peak_allocated, result.peak_reserved) == (14 * MIB + 1024, 16 * MIB)
    assert result.segment_events == (SegmentEvent(0, 0, 2 * MIB), SegmentEvent(1, 2 * MIB, 14 * MIB))
    assert result.segments == (Segment(0, 2 * MIB, True, 512), Segment(2 * MIB, 14 * MIB, False, 14 * MIB))
    assert (result.largest_free_block, result.stranded, result.releasable) == (2 * MIB - 512, 2 * MIB - 512, 0)
    assert result.ran_out is None


def test_an_empty_replay() -> None:
    result = replay([])
    assert (len(result.addresses), result.peak_allocated, result.peak_reserved, result.segments) == (0, 0, 0, ())


def test_running_out_ends_a_replay_and_is_a_result() -> None:
    events = [Event(0, 10 * MIB), Event(1, 2 * MIB), Event(0, -10 * MIB), Event(2, 30 * MIB - 1), Event(1, -2 * MIB)]
    result = replay(events, capacity_bytes=40 * MIB)
    assert result.ran_out == RanOut(
        event=3, requested_bytes=30 * MIB - 1, segment_bytes=30 * MIB, free_bytes=20 * MIB,
        allocated_bytes=2 * MIB, reserved_bytes=20 * MIB,
    )  # fmt: skip
    assert result.reserved == array("q", [10 * MIB, 30 * MIB, 30 * MIB])
    assert result.segment_events[-1] == SegmentEvent(3, 0, -10 * MIB)
    assert (result.peak_reserved, result.stranded, result.releasable) == (30 * MIB, 18 * MIB, 0)
    assert result.segments == (Segment(10 * MIB, 20 * MIB, False, 2 * MIB),)


def test_running_out_tells_what_is_reserved_but_unallocated_and_what_was_allowed() -> None:
    settings = AllocatorSettings(memory_fraction=0.25)
    result = replay([Event(0, 3 * MIB), Event(1, 21 * MIB)], settings, 90 * MIB, device_bytes=100 * MIB)
    assert result.ran_out == RanOut(
        event=1, requested_bytes=21 * MIB, segment_bytes=22 * MIB, free_bytes=70 * MIB,
        allocated_bytes=3 * MIB, reserved_bytes=20 * MIB, allowed_bytes=25 * MIB,
    )  # fmt: skip
    assert result.ran_out.unallocated_bytes == 17 * MIB


# Emptying the cache

CACHED = [Event(0, 10 * MIB), Event(1, 12 * MIB), Event(0, -10 * MIB), Event(2, 512)]


def test_the_cache_is_emptied_just_before_an_event() -> None:
    result = replay(CACHED, empty_cache_at=[3])
    assert result.reserved == array("q", [10 * MIB, 22 * MIB, 22 * MIB, 14 * MIB])
    assert result.segment_events[2:] == (SegmentEvent(3, 0, -10 * MIB), SegmentEvent(3, 22 * MIB, 2 * MIB))
    assert result.peak_reserved == 22 * MIB


def test_after_the_last_event_emptying_the_cache_counts_as_part_of_it() -> None:
    result = replay(CACHED, empty_cache_at=[4])
    assert result.reserved == array("q", [10 * MIB, 22 * MIB, 22 * MIB, 14 * MIB])
    assert result.segment_events[2:] == (SegmentEvent(3, 22 * MIB, 2 * MIB), SegmentEvent(3, 0, -10 * MIB))
    assert result.peak_reserved == 24 * MIB


def test_the_cache_is_emptied_once_for_each_place_named() -> None:
    twice = replay(CACHED, empty_cache_at=(4, 0, 2, 4))
    assert twice.reserved == replay(CACHED, empty_cache_at=[4]).reserved
    assert replay(CACHED) == replay(CACHED, empty_cache_at=[0, 1, 2])  # nothing is cached at these
    assert replay([], empty_cache_at=[0]) == replay([])


def test_pages_go_back_as_well() -> None:
    result = replay(CACHED, AllocatorSettings(expandable_segments=True), empty_cache_at=[3])
    assert result.reserved == array("q", [20 * MIB, 40 * MIB, 40 * MIB, 42 * MIB])  # 0 to 10 MiB: half a page
    freed = [*CACHED[:3], Event(1, -12 * MIB), CACHED[3]]
    result = replay(freed, AllocatorSettings(expandable_segments=True), empty_cache_at=[4])
    assert result.reserved == array("q", [20 * MIB, 40 * MIB, 40 * MIB, 40 * MIB, 2 * MIB])


def test_emptying_the_cache_after_memory_ran_out_is_too_late() -> None:
    result = replay(CACHED, capacity_bytes=20 * MIB, empty_cache_at=[3])
    assert result.ran_out is not None
    assert (result.ran_out.event, result.reserved) == (1, array("q", [10 * MIB]))


@pytest.mark.parametrize(("places", "wrong"), [([5], 5), ([4, 7], 7), ([-1, 2], -1)])
def test_the_cache_cannot_be_emptied_before_an_event_that_is_not_there(places: list[int], wrong: int) -> None:
    with pytest.raises(ValueError, match=f"event {wrong}"):
        replay(CACHED, empty_cache_at=places)


def test_segments_go_where_the_caller_says() -> None:
    places = {2 * MIB: 1 << 46, 20 * MIB: 1 << 45}
    result = replay([Event(0, 512), Event(1, 2 * MIB)], segment_addresses=places.__getitem__)
    assert result.addresses == array("q", [1 << 46, 1 << 45])


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([Event(3, 512), Event(3, 512)], "block 3 is allocated a second time"),
        ([Event(3, 512), Event(3, -512), Event(3, 512)], "block 3 is allocated a second time"),
        ([Event(3, -512)], "block 3 is freed .* but not allocated"),
        ([Event(3, 512), Event(3, -512), Event(3, -512)], "block 3 is freed .* but not allocated"),
        ([Event(3, 0)], "block 3 is freed .0 bytes. but not allocated"),
        ([Event(3, 512), Event(3, -500)], "block 3 of 512 bytes is freed as 500 bytes"),
    ],
)
def test_events_that_contradict_themselves_are_refused(events: list[Event], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replay(events)
