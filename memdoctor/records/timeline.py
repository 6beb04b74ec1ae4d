"""Births and deaths of memory, in order: what a probe writes down."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate


class Category(StrEnum):
    """What a block of GPU memory is for. Decided by identity, never by subtraction."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATIONS = "activations"
    INPUTS_AND_BUFFERS = "inputs_and_buffers"
    AUTOCAST_COPIES = "autocast_copies"
    TEMPORARIES = "temporaries"
    WORKSPACE = "workspace"


class PhaseName(StrEnum):
    """The named parts of a training run: the model moves to the GPU, steps run in this order, evaluation follows."""

    SETUP = "setup"
    FORWARD = "forward"
    BACKWARD = "backward"
    CLIP = "clip"
    OPTIMIZER = "optimizer"
    ZERO_GRAD = "zero_grad"
    EVALUATION = "evaluation"


@dataclass(frozen=True, slots=True)
class Event:
    """The birth (``delta_bytes > 0``) or death (``< 0``) of one block, in program order.

    ``block`` indexes the timeline's blocks; ``delta_bytes`` is the requested size, so a running sum of
    deltas is the memory in use. Storages of zero bytes never reach the allocator: no event.
    """

    block: int
    delta_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One storage or workspace: the bytes asked for, and who asked.

    ``allocated_bytes`` is what the allocator set aside for it (rounding and unsplit tail included, as
    ``torch.cuda.memory_allocated`` counts), at ``address``.
    """

    bytes: int
    category: Category
    module: str
    op: str
    dtype: str
    shape: tuple[int, ...]
    allocated_bytes: int
    address: int

    def __post_init__(self) -> None:
        """Nothing of no size reaches the allocator, and it sets aside no less than was asked for."""
        if not 0 < self.bytes <= self.allocated_bytes:
            raise ValueError(f"a block of {self.bytes} B, {self.allocated_bytes} B set aside for it")


@dataclass(frozen=True, slots=True)
class Phase:
    """Events ``begin`` to ``end`` (exclusive) of the timeline belong to this phase of this step; setup is step 0."""

    step: int
    name: PhaseName
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class SegmentEvent:
    """The allocator reserved (``delta_bytes > 0``) or released a segment while handling timeline event ``event``."""

    event: int
    delta_bytes: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Every birth and death in order, with the phases that they fell in and the segments that they needed.

    ``cache_clears`` are the events before which ``torch.cuda.empty_cache()`` was called (as many as there are events:
    after the last).
    """

    blocks: tuple[Block, ...]
    events: tuple[Event, ...]
    phases: tuple[Phase, ...]
    segments: tuple[SegmentEvent, ...]
    cache_clears: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Each block is born once with its bytes and dies at most once, after that; phases tile the events."""
        if any(not 0 <= event.block < len(self.blocks) for event in self.events):
            raise ValueError("an event names a block that is not there")
        if any(not 0 <= segment.event < len(self.events) for segment in self.segments):
            raise ValueError("a segment names an event that is not there")
        if any(not 0 <= clear <= len(self.events) for clear in self.cache_clears):
            raise ValueError("the cache is cleared at an event that is not there")
        alive: set[int] = set()
        seen: set[int] = set()
        for event in self.events:
            size = self.blocks[event.block].bytes
            born, died = event.delta_bytes == size, event.delta_bytes == -size
            if not (born and event.block not in seen) and not (died and event.block in alive):
                raise ValueError(f"block {event.block} of {size} B has the event {event.delta_bytes:+d} B out of turn")
            seen.add(event.block)
            (alive.add if born else alive.discard)(event.block)
        begins = [phase.begin for phase in self.phases]
        ends = [phase.end for phase in self.phases]
        if [*begins, len(self.events)] != [0, *ends] or ends != sorted(ends):
            raise ValueError("the phases do not tile the events")

    def in_use(self) -> tuple[int, ...]:
        """Requested bytes alive after each event."""
        return tuple(accumulate(event.delta_bytes for event in self.events))

    def memory_allocated(self) -> tuple[int, ...]:
        """``torch.cuda.memory_allocated()`` after each event: ``in_use`` plus rounding and unsplit tails."""
        signed = (self.blocks[e.block].allocated_bytes * (1 if e.delta_bytes > 0 else -1) for e in self.events)
        return tuple(accumulate(signed))

    def reserved(self) -> tuple[int, ...]:
        """``torch.cuda.memory_reserved()`` after each event."""
        deltas = [0] * len(self.events)
        for segment in self.segments:
            deltas[segment.event] += segment.delta_bytes
        return tuple(accumulate(deltas))

    def alive_after(self, event: int) -> tuple[int, ...]:
        """Indices of the blocks alive after event number ``event``, in order of birth."""
        alive: dict[int, None] = {}
        for item in self.events[: event + 1]:
            if item.delta_bytes > 0:
                alive[item.block] = None
            else:
                del alive[item.block]
        return tuple(alive)
