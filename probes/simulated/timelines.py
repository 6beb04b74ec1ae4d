"""From what the tracker saw to a timeline, by way of the allocator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from memdoctor.probes.attribution import category_of
from memdoctor.probes.repeating import Repeat
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.probes.simulated.allocator.replay import Replay, replay, replay_on_the_smallest
from memdoctor.probes.simulated.unrolling import Place, Unrolling
from memdoctor.probes.tracker import Tracker
from memdoctor.records import Block, Completed, Device, Event, Outcome, RanOut, SegmentEvent, Timeline


@dataclass(frozen=True, slots=True)
class Replayed:
    """The timeline, how the run ended, and how many micro-steps of each step are not in the timeline."""

    timeline: Timeline
    outcome: Outcome
    repeated_micro_steps: int = 0


def with_allocator(tracker: Tracker, device: Device, repeats: Sequence[Repeat] = ()) -> Replayed:
    """Replay on this card; where that runs out, on the smallest that it fits, to show what it would have taken.

    ``repeats`` has one for each step whose last micro-steps did not run.
    """
    settings = parse_alloc_conf(device.alloc_conf)
    everything = [repeat.left_out for repeat in repeats]
    # Where the cache is emptied has to be known before the replay, which then makes all copies.
    least = everything if tracker.cache_clears else [0] * len(repeats)
    unrolling = Unrolling(tracker.events, len(tracker.blocks), repeats, least)
    clears = _positions(tracker, unrolling.places(everything))
    on_the_card = partial(
        replay, settings=settings, capacity_bytes=device.allocator_limit_bytes, empty_cache_at=clears,
        device_bytes=device.total_bytes,
    )  # fmt: skip
    limited = on_the_card(unrolling)
    if limited.ran_out is None:
        kept = _Kept.of(tracker, unrolling, limited, on_the_card, [0] * len(repeats))
        return Replayed(kept.timeline(tracker), Completed(), kept.left_out)
    full, place = limited.ran_out, unrolling.places(unrolling.made)[limited.ran_out.event]
    until = [place[0] if repeat.begin <= place[1] < repeat.end else 0 for repeat in repeats]
    unrolling = replace(unrolling, least=[max(pair) for pair in zip(least, until, strict=True)])
    on_the_smallest = partial(replay_on_the_smallest, settings=settings, empty_cache_at=clears)
    kept = _Kept.of(tracker, unrolling, on_the_smallest(unrolling), on_the_smallest, until)
    outcome = RanOut(
        requested_bytes=full.requested_bytes, free_bytes=full.free_bytes, event=kept.numbers()[place],
        segment_bytes=full.segment_bytes, allocated_bytes=full.allocated_bytes, reserved_bytes=full.reserved_bytes,
    )  # fmt: skip
    return Replayed(kept.timeline(tracker), outcome, kept.left_out)


def _positions(tracker: Tracker, places: Sequence[Place]) -> list[int]:
    """Before which events of a replay the cache is emptied."""
    numbers = {number: at for at, (copy, number) in enumerate(places) if copy == 0}
    return [numbers.get(clear, len(places)) for clear in tracker.cache_clears]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A replay to its end, and how many copies of each repeat its timeline has: those with anything new in them.

    As many micro-steps are left out in each step.
    """

    unrolling: Unrolling
    replayed: Replay
    made: Sequence[int]
    copies: Sequence[int]
    left_out: int

    @classmethod
    def of(
        cls,
        tracker: Tracker,
        unrolling: Unrolling,
        replayed: Replay,
        again: Callable[[Unrolling], Replay],
        least: Sequence[int],
    ) -> _Kept:
        steps = {phase.step for phase in tracker.phases if phase.step}
        while True:
            made = unrolling.made_in(replayed.events)
            needed = [max(pair) for pair in zip(unrolling.needed(replayed, made), least, strict=True)]
            left = [repeat.left_out - copies for repeat, copies in zip(unrolling.repeats, needed, strict=True)]
            left_out = min(left) if len(left) == len(steps) else 0
            copies = [repeat.left_out - left_out for repeat in unrolling.repeats]
            if all(map(int.__le__, copies, made)):
                return cls(unrolling, replayed, made, copies, left_out)
            least = copies  # one step needs more than another made
            unrolling = replace(unrolling, least=[max(pair) for pair in zip(unrolling.least, least, strict=True)])
            replayed = again(unrolling)

    def numbers(self) -> dict[Place, int]:
        """The number in the timeline of every event that is kept."""
        return {place: number for number, place in enumerate(self.unrolling.places(self.copies))}

    def timeline(self, tracker: Tracker) -> Timeline:
        numbers, replayed = self.numbers(), self.replayed
        given: dict[tuple[int, int], int] = {}  # copy and block -> its number in the timeline
        blocks: list[Block] = []
        events: list[Event] = []
        at: list[int] = []
        before = 0
        last = {
            block: n for r, n in zip(self.unrolling.repeats, self.copies, strict=True) for block in r.before.values()
        }
        for place, event, address, after in zip(
            self.unrolling.places(self.made), replayed.events, replayed.addresses, replayed.allocated, strict=True
        ):
            at.append(len(events))
            if place in numbers:
                copy, original = divmod(event.block, len(tracker.blocks))
                copy = min(copy, last.get(original, copy))
                if event.delta_bytes > 0:
                    given[copy, original] = len(blocks)
                    blocks.append(_block(tracker, original, after - before, address))
                events.append(Event(given[copy, original], event.delta_bytes))
            before = after
        at.append(len(events))
        return Timeline(
            tuple(blocks), tuple(events), self.unrolling.phases(tracker.phases, self.copies),
            tuple(SegmentEvent(at[item.event], item.delta_bytes) for item in replayed.segment_events),
            tuple(_positions(tracker, self.unrolling.places(self.copies))),
        )  # fmt: skip


def _block(tracker: Tracker, number: int, allocated: int, address: int) -> Block:
    draft = tracker.blocks[number]
    return Block(
        bytes=draft.bytes, category=category_of(draft), module=draft.module, op=draft.op, dtype=draft.dtype,
        shape=draft.shape, allocated_bytes=allocated, address=address,
    )  # fmt: skip
