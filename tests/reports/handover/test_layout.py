"""Where segments lay, beside the allocator that put them there."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.probes.simulated.allocator.replay import Replay, replay
from memdoctor.records import Block, Category, Event, Phase, PhaseName, SegmentEvent, Timeline
from memdoctor.reports.handover.layout import layout_of
from memdoctor.units import MIB

CONFS = {
    "": False,
    "max_split_size_mb:40": False,
    "garbage_collection_threshold:0.5": False,
    "expandable_segments:True": True,
}


def events_of(seed: int, count: int) -> list[Event]:
    """Births and deaths of blocks from a byte to 60 MiB, at random; most of what is alive dies now and then."""
    choice = random.Random(seed)
    events: list[Event] = []
    alive: dict[int, int] = {}
    born = 0
    while len(events) < count:
        if alive and (len(alive) > 20 or choice.random() < 0.45):
            dying = choice.sample(sorted(alive), choice.choice([1, 1, 1, len(alive)]))
            events += [Event(number, -alive.pop(number)) for number in dying]
        else:
            size = choice.choice([choice.randint(1, MIB), choice.randint(MIB, 12 * MIB), choice.randint(MIB, 60 * MIB)])
            alive[born] = size
            events.append(Event(born, size))
            born += 1
    return events[:count]


def timeline_of(done: Replay, clears: tuple[int, ...] = ()) -> Timeline:
    """What a timeline keeps of a replay."""
    blocks = []
    before = 0
    for event, address, after in zip(done.events, done.addresses, done.allocated, strict=True):
        if event.delta_bytes > 0:
            block = Block(
                bytes=event.delta_bytes, category=Category.ACTIVATIONS, module="net", op="aten.empty", dtype="uint8",
                shape=(event.delta_bytes,), allocated_bytes=after - before, address=address,
            )  # fmt: skip
            blocks.append(block)
        before = after
    count = len(done.events)
    segments = tuple(SegmentEvent(item.event, item.delta_bytes) for item in done.segment_events if item.event < count)
    phase = Phase(1, PhaseName.FORWARD, 0, count)
    return Timeline(tuple(blocks), done.events, (phase,), segments, clears)


@pytest.mark.parametrize("conf", CONFS)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("room", [None, 1.0, 1.25])
def test_segments_lie_where_the_allocator_put_them(conf: str, seed: int, room: float | None) -> None:
    events = events_of(seed, 400)
    settings = parse_alloc_conf(conf)
    clears = (150, 400)
    most = max(replay(events, settings).allocated)
    capacity = None if room is None else int(room * most)
    done = replay(events, settings, capacity, empty_cache_at=clears if room is None else ())
    if done.ran_out is not None and not done.events:
        pytest.skip("nothing fits")
    timeline = timeline_of(done, clears if room is None else ())
    layout = layout_of(timeline, expandable=CONFS[conf])
    assert layout.exact
    assert [change.delta_bytes for change in layout.changes] == [item.delta_bytes for item in timeline.segments]
    if done.ran_out is None:
        ours, theirs = set(layout.segments), {(segment.address, segment.size) for segment in done.segments}
        assert sorted(size for _, size in ours) == sorted(size for _, size in theirs)
        # Of equal segments that are free and never used again, nobody can tell which one was released.
        used = {segment.address for segment in done.segments if segment.allocated}
        assert {address for address, _ in ours ^ theirs} & used == set()


def test_what_the_driver_puts_where_another_segment_lay_is_told_apart() -> None:
    # Two free segments of one size; one goes back, and the driver puts the next one where it lay.
    sizes, addresses = (30 * MIB, 30 * MIB, 30 * MIB, 5 * MIB), (300 * MIB, 100 * MIB, 300 * MIB, 100 * MIB)
    blocks = tuple(
        Block(
            bytes=size, category=Category.ACTIVATIONS, module="net", op="aten.empty", dtype="uint8", shape=(size,),
            allocated_bytes=size, address=address,
        )
        for size, address in zip(sizes, addresses, strict=True)
    )  # fmt: skip
    events = (Event(0, sizes[0]), Event(1, sizes[1]), Event(0, -sizes[0]), Event(1, -sizes[1]), Event(2, sizes[2]),
              Event(3, sizes[3]))  # fmt: skip
    segments = (SegmentEvent(0, 30 * MIB), SegmentEvent(1, 30 * MIB), SegmentEvent(4, -30 * MIB),
                SegmentEvent(4, 30 * MIB))  # fmt: skip
    layout = layout_of(Timeline(blocks, events, (Phase(1, PhaseName.FORWARD, 0, 6),), segments), expandable=False)
    assert layout.exact
    assert [(change.address, change.delta_bytes) for change in layout.changes] == [
        (300 * MIB, 30 * MIB), (100 * MIB, 30 * MIB), (300 * MIB, -30 * MIB), (300 * MIB, 30 * MIB)
    ]  # fmt: skip
    assert layout.segments == ((100 * MIB, 30 * MIB), (300 * MIB, 30 * MIB))


@given(seed=st.integers(0, 1000), expandable=st.booleans())
def test_a_timeline_that_makes_no_sense_still_has_every_block_in_a_segment(seed: int, expandable: bool) -> None:
    done = replay(events_of(seed, 60))
    timeline = timeline_of(done)
    wrong = Timeline(timeline.blocks, timeline.events, timeline.phases, (SegmentEvent(0, 2 * MIB),))
    layout = layout_of(wrong, expandable=expandable)
    if layout.exact:  # all of it fitted into the one segment
        return
    assert layout.changes == ()
    for block in timeline.blocks:
        assert any(
            start <= block.address and block.address + block.allocated_bytes <= start + size
            for start, size in layout.segments
        )
