"""A memory snapshot as ``torch.cuda.memory._snapshot()`` makes it, which PyTorch's memory viewer opens.

The format is that of ``_memory_snapshot_pickled`` (``torch/csrc/cuda/memory_snapshot.cpp``) and of the docstring of
``torch.cuda.memory._snapshot``; ``category`` is what the viewer colours by (``_profile_to_snapshot`` of
``torch/cuda/_memory_viz.py``). Blocks, their sizes, addresses and order are those of the timeline.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from typing import Any

from memdoctor.records import Block, Diagnosis, RanOutAt, Timeline
from memdoctor.reports.handover.layout import Layout, SegmentChange, layout_of
from memdoctor.reports.handover.phases import cut_short, label, notes_of, timeline_of
from memdoctor.units import MIB

PROTOCOL = 4  # MemoryViz.js unpickles 2 to 4
NO_MODULE = "outside any module"
# Where any entry has a category, MemoryViz.js fails unless one of them is this (annotate_snapshot).
UNKNOWN = "unknown"
_EXPANDABLE = re.compile(r"expandable_segments\s*:\s*true", re.IGNORECASE)
_SMALL_SEGMENT = 2 * MIB  # kSmallBuffer: segments of this size are of the small pool, larger ones of the large
_POOL = (0, 0)  # the allocator's own, of no graph and no MemPool

Frames = list[dict[str, Any]]


def is_expandable(alloc_conf: str) -> bool:
    """Whether these settings of the allocator ask for expandable segments."""
    return bool(_EXPANDABLE.search(alloc_conf))


def snapshot_pickle(diagnosis: Diagnosis, _document: object = None) -> bytes:
    """The snapshot as a pickle of plain values.

    Raises:
        InputError: the diagnosis has no timeline.
    """
    return pickle.dumps(snapshot_of(diagnosis), protocol=PROTOCOL)


def snapshot_of(diagnosis: Diagnosis) -> dict[str, Any]:
    """The snapshot: segments and blocks at the end, and the trace of device 0.

    What is alive at the end is ``active_allocated``; its sizes sum to ``torch.cuda.memory_allocated()`` then. The most
    that the trace holds at once is the peak's ``allocated_bytes``, and of its segments ``reserved_bytes``.

    Raises:
        InputError: the diagnosis has no timeline.
    """
    timeline = timeline_of(diagnosis)
    conf = diagnosis.device.alloc_conf
    refused = len(timeline.events) - 1 if cut_short(diagnosis) else None
    layout = layout_of(timeline, expandable=is_expandable(conf), refused=refused)
    trace = _Trace(timeline, layout, diagnosis.ran_out, refused, expandable=is_expandable(conf))
    entries = list(trace.entries())
    return {
        "segments": list(trace.segments()),
        "device_traces": [entries],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": conf,
            "expandable_segments": is_expandable(conf),
        },
        "external_annotations": list(_annotations(diagnosis, timeline, layout)),
    }


class _Trace:
    """The timeline, entry by entry; a block's frames are made once, when it is born."""

    def __init__(
        self, timeline: Timeline, layout: Layout, ran_out: RanOutAt | None, refused: int | None, *, expandable: bool
    ) -> None:
        self.timeline, self.layout, self.ran_out, self.refused = timeline, layout, ran_out, refused
        self.expandable = expandable
        self.frames: dict[int, Frames] = {}  # of every block alive
        self.texts: dict[str, str] = {}  # equal texts are pickled once where they are the same object

    def entries(self) -> Iterator[dict[str, Any]]:
        """Every entry in order, and last ``snapshot``, as PyTorch writes it."""
        changes = iter(self.layout.changes)
        change = next(changes, None)
        blocks = self.timeline.blocks
        for phase in self.timeline.phases:
            words = label(phase)
            for number in range(phase.begin, phase.end):
                event = self.timeline.events[number]
                block = blocks[event.block]
                if event.delta_bytes > 0:
                    self.frames[event.block] = self._frames(block, words, number)
                frames = self.frames[event.block]
                if self.ran_out is not None and number == self.ran_out.event:
                    yield _oom(self.ran_out, number, frames)
                while change is not None and change.event == number and not change.late:
                    yield self._segment(change, frames)
                    change = next(changes, None)
                yield from self._event(event.block, number, frames, born=event.delta_bytes > 0)
                while change is not None and change.event == number:
                    yield self._segment(change, frames)
                    change = next(changes, None)
        yield {**_entry("snapshot", 0, 0, len(self.timeline.events), []), "category": UNKNOWN}

    def _event(self, number: int, event: int, frames: Frames, *, born: bool) -> Iterator[dict[str, Any]]:
        block = self.timeline.blocks[number]
        if event == self.refused:
            del self.frames[number]
        elif born:
            entry = _entry("alloc", block.address, block.bytes, event, frames)
            yield {**entry, "category": self._text(block.category.value)}
        else:
            del self.frames[number]
            for action in ("free_requested", "free_completed"):
                yield _entry(action, block.address, block.bytes, event, frames)

    def _segment(self, change: SegmentChange, frames: Frames) -> dict[str, Any]:
        words = ("segment_map", "segment_unmap") if self.expandable else ("segment_alloc", "segment_free")
        action = words[change.delta_bytes < 0]
        return _entry(action, change.address, abs(change.delta_bytes), change.event, frames)

    def _frames(self, block: Block, phase: str, number: int) -> Frames:
        """Who asked, innermost first: the operator in its module, the phase, and what the block is for."""
        shape = "x".join(map(str, block.shape)) or "scalar"
        text = self._text
        return [
            {"filename": text(block.module or NO_MODULE), "line": 0, "name": text(block.op)},
            {"filename": text(block.category.value), "line": 0, "name": text(f"{block.dtype} {shape}")},
            {"filename": text(phase), "line": number, "name": "event"},
        ]

    def _text(self, words: str) -> str:
        return self.texts.setdefault(words, words)

    def segments(self) -> Iterator[dict[str, Any]]:
        """The segments held at the end, each tiled by its blocks; after the entries."""
        alive = sorted((self.timeline.blocks[number].address, number) for number in self.frames)
        following = iter(alive)
        item = next(following, None)
        for address, size in self.layout.segments:
            inside = []
            while item is not None and item[0] < address + size:
                inside.append(item[1])
                item = next(following, None)
            yield self._held(address, size, inside)

    def _held(self, address: int, size: int, inside: list[int]) -> dict[str, Any]:
        blocks = [self.timeline.blocks[number] for number in inside]
        allocated = sum(block.allocated_bytes for block in blocks)
        small = size == _SMALL_SEGMENT if not self.expandable else all(block.bytes <= MIB for block in blocks)
        return {
            "device": 0, "address": address, "total_size": size, "allocated_size": allocated, "active_size": allocated,
            "requested_size": sum(block.bytes for block in blocks), "stream": 0,
            "segment_type": "small" if small else "large", "segment_pool_id": _POOL, "is_expandable": self.expandable,
            "frames": [], "blocks": list(self._tiles(address, size, inside)),
        }  # fmt: skip

    def _tiles(self, address: int, size: int, inside: list[int]) -> Iterator[dict[str, Any]]:
        at = address
        for number in inside:
            block = self.timeline.blocks[number]
            if block.address > at:
                yield _tile(at, block.address - at, 0, "inactive", [])
            yield _tile(
                block.address, block.allocated_bytes, block.bytes, "active_allocated", self.frames[number]
            )  # fmt: skip
            at = block.address + block.allocated_bytes
        if at < address + size:
            yield _tile(at, address + size - at, 0, "inactive", [])


def _tile(address: int, size: int, requested: int, state: str, frames: Frames) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def _entry(action: str, address: int, size: int, event: int, frames: Frames) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": event, "frames": frames}


def _oom(ran_out: RanOutAt, event: int, frames: Frames) -> dict[str, Any]:
    """The allocator's error: what was asked for, and what the card had left."""
    return {
        "action": "oom", "device_free": ran_out.free_bytes, "size": ran_out.requested_bytes, "stream": 0,
        "time_us": event, "frames": frames,
    }  # fmt: skip


def _annotations(diagnosis: Diagnosis, timeline: Timeline, layout: Layout) -> Iterator[dict[str, Any]]:
    """Notes, and phases as ``record_function`` leaves them (``AnnotationEntry``, ``CachingDeviceAllocator.h`` of c10).

    ``name`` and ``stage`` are what PyTorch writes into them; a note begins and ends at once.
    """
    notes = list(notes_of(diagnosis))
    if not layout.exact:
        notes.append("where segments lay is not known: those shown are the stretches in which blocks ever lay")
    for note in notes:
        yield {"name": note, "stage": "START", "device": 0, "time_us": 0}
        yield {"name": note, "stage": "END", "device": 0, "time_us": 0}
    for phase in timeline.phases:
        yield {"name": label(phase), "stage": "START", "device": 0, "time_us": phase.begin}
        yield {"name": label(phase), "stage": "END", "device": 0, "time_us": phase.end}
