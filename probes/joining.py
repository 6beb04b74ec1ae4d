"""From an allocator's history and what the tracker saw beside it to a timeline: every block with its owner.

The history has every block and no owner, the tracker has the owner of every tensor and not what kernels allocate inside
themselves. They are joined by place: the tracker notes how far the history had got. What nobody claims was allocated
by the operator that ran, for itself: a kernel's workspace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from memdoctor.errors import MeasureError
from memdoctor.probes.attribution import category_of
from memdoctor.probes.history import Action, Entry, History
from memdoctor.probes.simulated.allocator.settings import AllocatorSettings, segment_size
from memdoctor.probes.tiling import Tiling
from memdoctor.probes.timed import Claim, Span, TimedTracker
from memdoctor.probes.tracker import BlockDraft, Mark
from memdoctor.records import Block, Completed, Event, Outcome, Phase, PhaseName, RanOut, SegmentEvent, Timeline

OUTSIDE = "outside any operator"
_GROWS = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_SHRINKS = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


def join(
    history: History, tracker: TimedTracker, settings: AllocatorSettings, *, ran_out: bool
) -> tuple[Timeline, Outcome]:
    """The timeline of a run, and how it ended. With ``ran_out`` it ended at the last request that was refused.

    That request is the timeline's last event: what the step would have held if it had been served, and the segment that
    it would have taken. What followed, the way out of the step, is left out.

    Raises:
        MeasureError: the history contradicts itself, so somebody else has meddled with it.
    """
    entries, refused = _until_refused(history.entries) if ran_out else (_during(history.entries, tracker), None)
    walk = _Walk(Tiling(settings), tracker)
    try:
        for entry in entries:
            walk.take(entry)
        outcome = Completed() if refused is None else walk.refuse(refused, settings)
    except ValueError as error:
        raise MeasureError(
            "the allocator's history contradicts itself",
            why=str(error),
            hint="let nothing in the model or the factory call torch.cuda.memory's functions",
        ) from error
    return walk.timeline(), outcome


def _during(entries: tuple[Entry, ...], tracker: TimedTracker) -> tuple[Entry, ...]:
    """Without what came after the last phase."""
    end, position = tracker.phases[-1].end, 0
    for index, entry in enumerate(entries):
        if entry.action in (Action.ALLOC, Action.FREE):
            if position == end:
                return entries[:index]
            position += 1
    return entries


def _until_refused(entries: tuple[Entry, ...]) -> tuple[tuple[Entry, ...], Entry]:
    last = max((index for index, entry in enumerate(entries) if entry.action is Action.OOM), default=None)
    if last is None:
        raise MeasureError(
            "the step ran out of memory, and PyTorch's allocator did not refuse anything",
            why="something beside it asked the driver for memory: a library of CUDA's, or the model's own code",
            hint="a smaller --batch-size leaves room for it",
        )
    return entries[:last], entries[last]


@dataclass(slots=True)
class _Found:
    """A block of the history: its request, what it was given, where, and whose it is."""

    bytes: int
    given: int
    address: int
    draft: BlockDraft


@dataclass(slots=True)
class _Walk:
    """Goes through the history once; ``position`` is how many births and deaths there were."""

    tiling: Tiling
    tracker: TimedTracker
    found: list[_Found] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    segments: list[SegmentEvent] = field(default_factory=list)
    alive: dict[int, int] = field(default_factory=dict)  # address -> block
    claims: dict[int, list[Claim]] = field(default_factory=dict)
    spans: Iterator[Span] = field(default_factory=lambda: iter(()))
    span: Span | None = None

    def __post_init__(self) -> None:
        for claim in self.tracker.claims:
            self.claims.setdefault(claim.at, []).append(claim)
        self.spans = iter(self.tracker.spans)
        self.span = next(self.spans, None)

    def take(self, entry: Entry) -> None:
        match entry.action:
            case Action.ALLOC:
                self._birth(entry)
            case Action.FREE:
                self._death(entry)
            case action if action in _GROWS:
                self.tiling.map(entry.address, entry.bytes)
                self.segments.append(SegmentEvent(len(self.events), entry.bytes))
            case action if action in _SHRINKS:
                self.tiling.unmap(entry.address, entry.bytes)
                self.segments.append(SegmentEvent(len(self.events), -entry.bytes))

    def _birth(self, entry: Entry) -> None:
        given = self.tiling.allocate(entry.address, entry.bytes)
        draft = self._workspace(entry.bytes)  # whose operator is found by this event's own number
        self.alive[entry.address] = len(self.found)
        self.events.append(Event(len(self.found), entry.bytes))
        self.found.append(_Found(entry.bytes, given, entry.address, draft))
        self._claim()

    def _death(self, entry: Entry) -> None:
        self.tiling.free(entry.address)
        block = self.alive.pop(entry.address)
        self.events.append(Event(block, -self.found[block].bytes))
        self._claim()

    def _claim(self) -> None:
        """What the tracker saw at this place: these blocks are tensors'. Memory of other allocators is not here."""
        for claim in self.claims.pop(len(self.events), ()):
            block = self.alive.get(claim.address)
            if block is not None:
                self.found[block].draft = self.tracker.blocks[claim.draft]

    def _workspace(self, nbytes: int) -> BlockDraft:
        """A block that nobody has claimed: the operator's that runs."""
        span = self._span_at(len(self.events))
        module, op = (span.module, f"{span.op}: workspace") if span else ("", OUTSIDE)
        return BlockDraft(nbytes, module, op, "uint8", (nbytes,), {Mark.WORKSPACE})

    def _span_at(self, position: int) -> Span | None:
        """The operator that ran when event number ``position`` came; positions only grow."""
        while self.span is not None and self.span.end <= position:
            self.span = next(self.spans, None)
        return self.span if self.span is not None and self.span.begin <= position else None

    def refuse(self, entry: Entry, settings: AllocatorSettings) -> RanOut:
        """The last event: a request that was not served, and what was there when it was refused."""
        span = self._refused_span()
        module, op = (span.module, span.op) if span else ("", OUTSIDE)
        moving = self.tracker.phases[-1].name is PhaseName.SETUP  # the model, to the device
        draft = BlockDraft(entry.bytes, module, op, "uint8", (entry.bytes,), {Mark.PARAMETER} if moving else set())
        reserved = sum(segment.delta_bytes for segment in self.segments)
        allocated = sum(self.found[block].given for block in self.alive.values())
        segment = segment_size(entry.bytes, settings)
        number = len(self.events)
        self.segments.append(SegmentEvent(number, segment))
        self.events.append(Event(len(self.found), entry.bytes))
        self.found.append(_Found(entry.bytes, entry.bytes, 0, draft))
        return RanOut(
            requested_bytes=entry.bytes, free_bytes=entry.address, event=number, segment_bytes=segment,
            allocated_bytes=allocated, reserved_bytes=reserved,
        )  # fmt: skip

    def _refused_span(self) -> Span | None:
        """The operator that was refused ended where it began, or after blocks of its own: the last one noted."""
        return next((span for span in reversed(self.tracker.spans) if span.begin <= len(self.events)), None)

    def timeline(self) -> Timeline:
        events, phases = len(self.events), self.tracker.phases
        last = phases[-1]
        return Timeline(
            blocks=tuple(map(_block, self.found)),
            events=tuple(self.events),
            phases=(*phases[:-1], Phase(last.step, last.name, last.begin, events)),  # a refusal cuts it short
            # Under the event that they served; what an emptied cache gave back at the very end, under the last one.
            segments=tuple(SegmentEvent(min(item.event, events - 1), item.delta_bytes) for item in self.segments),
            cache_clears=tuple(self.tracker.cache_clears),
        )


def _block(found: _Found) -> Block:
    draft = found.draft
    return Block(
        bytes=found.bytes, category=category_of(draft), module=draft.module, op=draft.op, dtype=draft.dtype,
        shape=draft.shape, allocated_bytes=found.given, address=found.address,
    )  # fmt: skip
