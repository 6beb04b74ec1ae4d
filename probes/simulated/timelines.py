"""From what the tracker saw to a timeline, by way of the allocator."""

from __future__ import annotations

from memdoctor.probes.attribution import category_of
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.probes.simulated.allocator.replay import Replay, replay, replay_on_the_smallest
from memdoctor.probes.tracker import Tracker
from memdoctor.records import Block, Completed, Device, Outcome, RanOut, SegmentEvent, Timeline


def with_allocator(tracker: Tracker, device: Device) -> tuple[Timeline, Outcome]:
    """Replay on this card; where that runs out, on the smallest that it fits, to show what it would have taken."""
    settings, clears = parse_alloc_conf(device.alloc_conf), tracker.cache_clears
    limited = replay(
        tracker.events, settings, device.allocator_limit_bytes, empty_cache_at=clears, device_bytes=device.total_bytes
    )
    if limited.ran_out is None:
        return _timeline(tracker, limited), Completed()
    full = limited.ran_out
    outcome = RanOut(
        requested_bytes=full.requested_bytes, free_bytes=full.free_bytes, event=full.event,
        segment_bytes=full.segment_bytes, allocated_bytes=full.allocated_bytes, reserved_bytes=full.reserved_bytes,
    )  # fmt: skip
    return _timeline(tracker, replay_on_the_smallest(tracker.events, settings, clears)), outcome


def _timeline(tracker: Tracker, replayed: Replay) -> Timeline:
    allocated: dict[int, tuple[int, int]] = {}
    before = 0
    for event, address, after in zip(tracker.events, replayed.addresses, replayed.allocated, strict=True):
        if event.delta_bytes > 0:
            allocated[event.block] = (after - before, address)
        before = after
    blocks = tuple(
        Block(
            bytes=draft.bytes, category=category_of(draft), module=draft.module, op=draft.op, dtype=draft.dtype,
            shape=draft.shape, allocated_bytes=allocated[index][0], address=allocated[index][1],
        )
        for index, draft in enumerate(tracker.blocks)
    )  # fmt: skip
    segments = tuple(SegmentEvent(item.event, item.delta_bytes) for item in replayed.segment_events)
    return Timeline(blocks, tuple(tracker.events), tuple(tracker.phases), segments, tuple(tracker.cache_clears))
