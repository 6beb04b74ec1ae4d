"""Allocator histories recorded on real GPUs: what a file holds, and the state from which it starts.

The format is that of ``data/allocator_traces``: gzipped JSON with the segments and live blocks at the
start, the events in order, and the segments at the end. One stream.
"""

from __future__ import annotations

import gzip
import json
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from memdoctor.errors import InputError
from memdoctor.probes.simulated.allocator.segments import LiveBlock, Segment
from memdoctor.probes.simulated.allocator.settings import AllocatorSettings, is_split, round_size

_ACTIONS = ("a", "f", "S", "F")
_HIGHEST = 1 << 63


class TraceError(InputError):
    """The file is not a trace; the message says in one line which file and why."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """``action`` is ``a`` alloc, ``f`` free completed, ``S`` segment got or ``F`` segment released.

    ``size`` is in bytes, as requested for blocks.
    """

    action: str
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded history; ``start`` is each first segment with its live blocks, in order of address."""

    name: str
    start: tuple[tuple[Segment, tuple[LiveBlock, ...]], ...]
    events: tuple[TraceEvent, ...]
    final_segments: tuple[Segment, ...]
    peak_reserved: int


def read_trace(path: Path, settings: AllocatorSettings | None = None) -> Trace:
    """Read one trace, recorded under ``settings``. :class:`TraceError` if it cannot be read or adds up to nothing."""
    try:
        data = json.loads(gzip.decompress(path.read_bytes()))
    except OSError as problem:
        raise TraceError(f"{path}: {problem.strerror or problem}") from problem
    except (EOFError, zlib.error, ValueError, RecursionError) as problem:
        raise TraceError(f"{path}: not gzipped JSON: {problem}") from problem
    try:
        return _parse(data, settings or AllocatorSettings())
    except ValueError as problem:
        raise TraceError(f"{path}: not an allocator trace: {problem}") from problem


def true_sizes(requests: Sequence[tuple[int, int]], end: int, settings: AllocatorSettings) -> tuple[LiveBlock, ...]:
    """Return the live blocks of a segment that ends at ``end``, from their (address, requested bytes) in order.

    A trace tells what was requested, not what was given: the rounded size, or more where the rest was too
    little to split off. In the small pool such a rest is less than a minimum block, so every gap behind a
    live block is free. In the large pool no block, free or in use, has ``small_limit`` bytes or less: so a
    gap of no more than that must be a rest, and belongs to the block before it. A larger gap is taken to be
    free from its first byte. Weak case: up to ``small_limit`` of it may be such a rest all the same, which a
    trace does not tell before the next block is put there; of the 51 such gaps in the eight shared traces
    none led to another address than the recorded one.
    """
    blocks = []
    for (address, requested), (bound, _) in pairwise([*requests, (end, 0)]):
        size = round_size(requested, settings)
        rest = bound - address - size
        if rest < 0:
            raise ValueError(f"the live block at {address} reaches over what follows it")
        kept = 0 if is_split(size, rest, settings) else rest
        blocks.append(LiveBlock(address, size + kept, requested))
    return tuple(blocks)


def _parse(data: object, settings: AllocatorSettings) -> Trace:
    """Turn decoded JSON into a trace; ``ValueError`` says what is wrong with it."""
    segments = _rows(data, "initial_segments", 4)
    recorded = [row for row in _rows(data, "events", 4) if _action(row[0]) in _ACTIONS]
    if all(row[0] != "a" for row in recorded):
        raise ValueError("no allocation in it")
    if len({str(row[3]) for row in segments + recorded}) > 1:
        raise ValueError("more than one stream")
    live = sorted((_whole(row[0]), _size(row[1])) for row in _rows(data, "initial_live_blocks", 2))
    events = tuple(TraceEvent(_action(row[0]), _whole(row[1]), _size(row[2])) for row in recorded)
    _check_lives({address for address, _ in live}, events)
    final = [Segment(*_extent(row), allocated=_whole(row[4])) for row in _rows(data, "final_segments", 5)]
    return Trace(
        name=str(_entry(data, "name")),
        start=_start(sorted(_extent(row) for row in segments), live, settings),
        events=events,
        final_segments=tuple(sorted(final, key=lambda segment: segment.address)),
        peak_reserved=_whole(_entry(_entry(data, "summary"), "peak_reserved")),
    )


def _start(
    segments: list[tuple[int, int, bool]], live: list[tuple[int, int]], settings: AllocatorSettings
) -> tuple[tuple[Segment, tuple[LiveBlock, ...]], ...]:
    """Deal the live blocks out to the segments (address, bytes, small) they lie in; both in order."""
    if any(one + size > other for (one, size, _), (other, _, _) in pairwise(segments)):
        raise ValueError("segments overlap")
    start = []
    for address, size, small in segments:
        within = live[bisect_left(live, (address, 0)) : bisect_left(live, (address + size, 0))]
        blocks = true_sizes(within, address + size, settings)
        start.append((Segment(address, size, small, sum(block.size for block in blocks)), blocks))
    if sum(len(blocks) for _, blocks in start) != len(live):
        raise ValueError("a live block lies in no segment")
    return tuple(start)


def _check_lives(live: set[int], events: Iterable[TraceEvent]) -> None:
    """Refuse a block that is allocated where one lives, or freed where none does."""
    for number, event in enumerate(events):
        if (event.action == "a" and event.address in live) or (event.action == "f" and event.address not in live):
            raise ValueError(f"event {number} does not fit the blocks alive then: {event}")
        if event.action == "a":
            live.add(event.address)
        elif event.action == "f":
            live.remove(event.address)


def _entry(data: object, key: str) -> object:
    if not isinstance(data, dict) or key not in data:
        raise ValueError(f"no entry {key!r}")
    return data[key]


def _rows(data: object, key: str, width: int) -> list[list[object]]:
    rows = _entry(data, key)
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) >= width for row in rows):
        raise ValueError(f"{key!r} is not a list of rows of {width} values")
    return rows


def _action(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not an action")
    return value


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < _HIGHEST:
        raise ValueError(f"{value!r} is not an address or a number of bytes")
    return value


def _size(value: object) -> int:
    if value == 0:
        raise ValueError("a segment or a block of 0 bytes")
    return _whole(value)


def _extent(row: Sequence[object]) -> tuple[int, int, bool]:
    """Return a segment's address, bytes, and whether it is small."""
    if row[2] not in ("small", "large"):
        raise ValueError(f"{row[2]!r} is neither a small nor a large segment")
    return _whole(row[0]), _size(row[1]), row[2] == "small"
