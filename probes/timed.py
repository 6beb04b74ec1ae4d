"""A tracker that notes, beside what it sees, how far the allocator's history had got: so that the two can be joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from memdoctor.probes.autocast_copies import CopyMarkingTracker
from memdoctor.probes.history import Allocator
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.tracker import BlockDraft


@dataclass(frozen=True, slots=True)
class Claim:
    """At position ``at`` of the history, the block at ``address`` was that of draft number ``draft``."""

    draft: int
    address: int
    at: int


@dataclass(frozen=True, slots=True)
class Span:
    """Positions ``begin`` to ``end`` (exclusive) of the history passed while this operator ran."""

    begin: int
    end: int
    op: str
    module: str


class TimedTracker(CopyMarkingTracker):
    """A tracker for a real device with its allocator. Its positions are those of the allocator's history."""

    def __init__(self, allocator: Allocator, clock: ModuleClock) -> None:
        super().__init__(allocator.device.type, clock)
        self.claims: list[Claim] = []
        self.spans: list[Span] = []
        self._allocator = allocator

    def empty_cache(self) -> None:
        """Give unused segments back, and note when."""
        super().empty_cache()
        self._allocator.empty_cache()

    def _position(self) -> int:
        return self._allocator.position()

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        begin = self._position()
        try:
            return super()._run(func, args, kwargs)
        finally:  # where memory runs out, the operator that asked for it is told by its span
            self.spans.append(Span(begin, self._position(), str(func), self._clock.current))

    def _born_with(self, storage: torch.UntypedStorage, draft: BlockDraft) -> int:
        number = super()._born_with(storage, draft)
        self.claims.append(Claim(number, self._allocator.address_of(storage), self._position()))
        return number
