"""Micro-steps that did not run, put back as events while the allocator's state still changes with them.

Each is a copy of the last one that ran. Once the allocator is in a state in which it was after an earlier one, all that
would follow serves the same requests in the same way, and is not replayed. Of the copies a timeline keeps those up to
the last one in which a segment came or went, or a block was given other bytes than in the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from memdoctor.probes.repeating import Repeat
from memdoctor.probes.simulated.allocator.caching import Layout
from memdoctor.probes.simulated.allocator.replay import Replay
from memdoctor.records import Event, Phase

Place = tuple[int, int]
"""Which copy (0: what was recorded), and the number of the recorded event."""


@dataclass(frozen=True, slots=True)
class Unrolling:
    """What was recorded, its repeats, and how many copies of each are replayed in any case.

    The block of copy ``n`` of a micro-step is the recorded one's number plus ``n`` times ``blocks``. ``made`` is how
    many copies the last replay began, repeat by repeat.
    """

    events: Sequence[Event]
    blocks: int
    repeats: Sequence[Repeat]
    least: Sequence[int]
    made: list[int] = field(default_factory=list)

    def __call__(self, layout: Callable[[Callable[[int], int]], Layout]) -> Iterator[Event]:
        """The events with as many copies as it takes; to be replayed while they are made."""
        self.made[:] = [0] * len(self.repeats)
        last: dict[int, int] = {}  # a block that a repeated micro-step leaves -> the copy that left it last
        at = 0
        for index, repeat in enumerate(self.repeats):
            yield from self._events(at, repeat.begin, last)
            seen = [layout(partial(self._name, repeat))]
            yield from self._events(repeat.begin, repeat.end, last)
            seen.append(layout(self._original))
            while self.made[index] < repeat.left_out and not self._settled(seen, index):
                self.made[index] += 1
                yield from self._copy(repeat, self.made[index])
                seen.append(layout(self._original))
            last |= dict.fromkeys(repeat.before.values(), self.made[index])
            at = repeat.end
        yield from self._events(at, len(self.events), last)

    def _settled(self, seen: Sequence[Layout], index: int) -> bool:
        if self.made[index] < self.least[index]:
            return False
        cycle = next((n for n, layout in enumerate(seen[-2::-1], 1) if layout == seen[-1]), None)
        return cycle is not None and (self.repeats[index].left_out - self.made[index]) % cycle == 0

    def _events(self, begin: int, end: int, last: dict[int, int]) -> Iterator[Event]:
        for event in self.events[begin:end]:
            copy = last.get(event.block, 0)
            yield Event(event.block + self.blocks * copy, event.delta_bytes) if copy else event

    def _copy(self, repeat: Repeat, number: int) -> Iterator[Event]:
        shift = number * self.blocks
        for event in self.events[repeat.begin : repeat.end]:
            before = repeat.before.get(event.block)
            block = event.block + shift if before is None else before + shift - self.blocks
            yield Event(block, event.delta_bytes)

    def _original(self, number: int) -> int:
        return number % self.blocks

    def _name(self, repeat: Repeat, number: int) -> int:
        original = number % self.blocks
        return repeat.before.get(original, original)

    def made_in(self, replayed: Iterable[Event]) -> list[int]:
        """How many copies of each repeat there are in what was replayed to its end."""
        made = {min(repeat.before.values()): 0 for repeat in self.repeats}
        for event in replayed:
            copy, original = divmod(event.block, self.blocks)
            if original in made:
                made[original] = max(made[original], copy)
        return list(made.values())

    def places(self, made: Sequence[int]) -> list[Place]:
        """Where each event of a replay with so many copies is from."""
        places: list[Place] = []
        at = 0
        for repeat, copies in zip(self.repeats, made, strict=True):
            places += [(0, number) for number in range(at, repeat.end)]
            places += [(n, number) for n in range(1, copies + 1) for number in range(repeat.begin, repeat.end)]
            at = repeat.end
        return places + [(0, number) for number in range(at, len(self.events))]

    def needed(self, replayed: Replay, made: Sequence[int]) -> list[int]:
        """The last copy of each repeat in which anything is other than in the one before."""
        changes = {item.event for item in replayed.segment_events}
        needed, moved = [], 0
        for repeat, copies in zip(self.repeats, made, strict=True):
            length, first = repeat.end - repeat.begin, repeat.begin + moved
            spans = [range(first + n * length, first + (n + 1) * length) for n in range(copies + 1)]
            given = [_steps(replayed.allocated, span) for span in spans]
            new = (
                n for n in range(copies, 0, -1) if given[n] != given[n - 1] or not changes.isdisjoint(spans[n])
            )  # fmt: skip
            needed.append(next(new, 0))
            moved += copies * length
        return needed

    def phases(self, recorded: Sequence[Phase], kept: Sequence[int]) -> tuple[Phase, ...]:
        """The phases where so many copies of each repeat are kept."""
        copies = {repeat.end: (repeat, kept) for repeat, kept in zip(self.repeats, kept, strict=True)}
        phases: list[Phase] = []
        moved = 0
        for phase in recorded:
            phases.append(Phase(phase.step, phase.name, phase.begin + moved, phase.end + moved))
            repeat, count = copies.get(phase.end, (None, 0))
            if repeat is None or phase.begin < repeat.begin or phase.begin == phase.end:
                continue
            length = repeat.end - repeat.begin
            for _ in range(count):
                phases += [Phase(p.step, p.name, p.begin + length, p.end + length) for p in phases[-2:]]
            moved += count * length
        return tuple(phases)


def _steps(allocated: Sequence[int], span: range) -> list[int]:
    """What the allocator gave and took back, event by event."""
    column = allocated[span.start - 1 : span.stop]
    return [after - before for before, after in pairwise(column)]
