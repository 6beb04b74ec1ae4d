"""Micro-steps that repeat: which of an optimizer step need not run, because they would be what the last one was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from memdoctor.probes.tracker import BlockDraft, Tracker
from memdoctor.records import Event


@dataclass(frozen=True, slots=True)
class Repeat:
    """The last micro-step of a step that ran: events ``begin`` to ``end`` (exclusive), two phases that end there.

    ``left_out`` more like it would have followed. ``before`` maps what the micro-step before it left and it frees to
    what it leaves itself, for the next to free.
    """

    begin: int
    end: int
    left_out: int
    before: Mapping[int, int]


@dataclass(slots=True)
class Repeats:
    """Decides, after each micro-step, whether the rest of its step can be left out; ``found`` has one for each step.

    ``data_asked()`` counts the questions that the model asked of its inputs whose answers may differ from one batch to
    the next: where a micro-step asks any, another may differ from it.
    """

    tracker: Tracker
    data_asked: Callable[[], int]
    found: list[Repeat] = field(default_factory=list)
    _asked: int = 0

    def __call__(self, left: int) -> bool:
        """Whether the ``left`` micro-steps that are left of the step repeat the one that is just over."""
        asked, self._asked = self.data_asked() - self._asked, self.data_asked()
        phases = self.tracker.phases[-6:]  # three micro-steps: the first makes the gradients, and is like no other
        if not left or asked or len(phases) < 6 or len({(phase.step, phase.name) for phase in phases}) > 2:
            return False
        previous, begin, end = phases[2].begin, phases[4].begin, len(self.tracker.events)
        if any(previous <= clear <= end for clear in self.tracker.cache_clears):
            return False
        before = counterparts(self.tracker.blocks, self.tracker.events[previous:begin], self.tracker.events[begin:end])
        if before is None:
            return False
        self.found.append(Repeat(begin, end, left, before))
        return True


def counterparts(blocks: list[BlockDraft], first: list[Event], second: list[Event]) -> Mapping[int, int] | None:
    """What ``first`` leaves, by its place in ``second``; ``None`` where the two are not the same births and deaths.

    The same means: alike blocks in the same order, and everything else that dies there was left by the one before.
    """
    births = tuple([event.block for event in events if event.delta_bytes > 0] for events in (first, second))
    if len(births[0]) != len(births[1]) or len(first) != len(second):
        return None
    same = dict(zip(*births, strict=True))
    if any(_kind(blocks[one]) != _kind(blocks[two]) for one, two in same.items()):
        return None
    own, left = set(births[1]), set(births[0])
    for one, two in zip(first, second, strict=True):
        if one.block in same:  # it lives and dies within
            left -= {one.block} if one.delta_bytes < 0 else set()
            alike = same[one.block] == two.block and one.delta_bytes == two.delta_bytes
        else:  # it was left by the micro-step before
            alike = two.block in same and two.block not in own and _kind(blocks[one.block]) == _kind(blocks[two.block])
        if not alike:
            return None
    died = {event.block for event in second if event.delta_bytes < 0}
    return {block: same[block] for block in left} if left == died - own else None


def _kind(draft: BlockDraft) -> tuple[object, ...]:
    return (draft.bytes, draft.module, draft.op, draft.dtype, draft.shape, frozenset(draft.marks))
