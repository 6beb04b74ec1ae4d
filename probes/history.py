"""What an allocator wrote down of a run: births and deaths of blocks, segments, and what it counted. Facts alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import torch


class Action(StrEnum):
    """Entries of ``torch.cuda.memory._snapshot()["device_traces"]`` that matter here, by their names there.

    A block counts as allocated until ``free_requested`` (``CUDACachingAllocator.cpp``, ``free``); the
    ``free_completed`` that follows, later where another stream used the block, changes no figure of PyTorch's.
    """

    ALLOC = "alloc"
    FREE = "free_requested"
    SEGMENT_ALLOC = "segment_alloc"
    SEGMENT_FREE = "segment_free"
    SEGMENT_MAP = "segment_map"
    SEGMENT_UNMAP = "segment_unmap"
    OOM = "oom"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: ``bytes`` as requested, or of the segment. ``address`` of an OOM is what the card had left."""

    action: Action
    address: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The allocator's own counters at the end, in bytes; the peaks are since the history began."""

    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int


@dataclass(frozen=True, slots=True)
class History:
    """Everything since the beginning, when the allocator held nothing."""

    entries: tuple[Entry, ...]
    totals: Totals


class Allocator(Protocol):
    """Where memory of ``device`` comes from, and who keeps its history: CUDA's, or what stands in for it in a test."""

    device: torch.device

    def begin(self) -> None:
        """Give back what is left of earlier work, and write down everything from here on.

        Raises:
            MeasureError: there is no such device, or earlier work cannot be got rid of.
        """

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on ``device``, a copy unless it is there already."""

    def position(self) -> int:
        """How many blocks were born and died since the beginning: a place in the history."""

    def address_of(self, storage: torch.UntypedStorage) -> int:
        """Where the block of this storage lies."""

    def empty_cache(self) -> None:
        """Give unused segments back to the driver."""

    def end(self) -> History:
        """Stop writing.

        Raises:
            MeasureError: the history has gaps.
        """
