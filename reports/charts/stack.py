"""Memory over time, by category: the timeline with few enough instants to draw."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from memdoctor.analysis import peak_event
from memdoctor.records import Category, Phase, Timeline

MOST = 600  # instants: more than a chart has columns for


@dataclass(frozen=True, slots=True)
class Stack:
    """Bytes in use after some of the events, by category, and what was reserved then.

    ``columns`` has a tuple for each category that is ever there, as long as ``events``. ``of`` is how many events the
    timeline has; where they are more than are shown, each that is shown is the highest of its neighbours, and the peak
    and the last event of every phase are among them. ``peak`` is the event at which the most is in use.
    """

    events: tuple[int, ...]
    columns: dict[Category, tuple[int, ...]]
    reserved: tuple[int, ...]
    phases: tuple[Phase, ...]
    peak: int
    of: int

    @property
    def thinned(self) -> bool:
        """Whether events were left out."""
        return len(self.events) < self.of


def stack_of(timeline: Timeline, most: int = MOST) -> Stack:
    """The chart of a timeline, of some ``most`` events beside those that have to be there."""
    peak, reserved = peak_event(timeline), timeline.reserved()
    events = _kept(timeline, most, peak)
    columns = zip(Category, zip(*_rows(timeline, events), strict=True), strict=True)
    return Stack(
        events=events,
        columns={category: column for category, column in columns if any(column)},
        reserved=tuple(reserved[number] for number in events),
        phases=timeline.phases,
        peak=peak,
        of=len(timeline.events),
    )


def _rows(timeline: Timeline, events: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Bytes of every category after each of these events. Lists of numbers: a million events are common."""
    place = {category: number for number, category in enumerate(Category)}
    places = [place[block.category] for block in timeline.blocks]
    now = [0] * len(place)
    for begin, end in itertools.pairwise((-1, *events)):
        for event in timeline.events[begin + 1 : end + 1]:
            now[places[event.block]] += event.delta_bytes
        yield tuple(now)


def _kept(timeline: Timeline, most: int, peak: int) -> tuple[int, ...]:
    """All events where they are few; else the highest of each run of neighbours, the peak, and the ends of phases."""
    count = len(timeline.events)
    if count <= most:
        return tuple(range(count))
    in_use = timeline.in_use()
    edges = [bucket * count // most for bucket in range(most + 1)]
    highest = {
        max(range(begin, end), key=in_use.__getitem__) for begin, end in itertools.pairwise(edges)
    }  # fmt: skip
    ends = {phase.end - 1 for phase in timeline.phases if phase.end > phase.begin}
    return tuple(sorted(highest | ends | {peak}))
