"""A history written by hand, and what the tracker saw beside it: whose each block is."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_standin import CudaStandIn

from memdoctor.errors import MeasureError
from memdoctor.probes.history import Action, Entry, History, Totals
from memdoctor.probes.joining import OUTSIDE, join
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.simulated.allocator.settings import AllocatorSettings
from memdoctor.probes.timed import Claim, Span, TimedTracker
from memdoctor.probes.tracker import BlockDraft, Mark
from memdoctor.records import Category, Phase, PhaseName, RanOut

MIB = 1 << 20
BASE = 0x7000_0000
SEGMENT = Entry(Action.SEGMENT_ALLOC, BASE, 2 * MIB)


def alloc(offset: int, nbytes: int) -> Entry:
    return Entry(Action.ALLOC, BASE + offset, nbytes)


def free(offset: int, nbytes: int) -> Entry:
    return Entry(Action.FREE, BASE + offset, nbytes)


def history(*entries: Entry) -> History:
    return History(entries, Totals(0, 0, 0, 0))


def seen(spans: list[Span], claims: list[Claim], end: int, **drafts: Any) -> TimedTracker:
    """A tracker that has seen all this; drafts by name of their operator, with their marks."""
    tracker = TimedTracker(CudaStandIn(), ModuleClock())
    tracker.spans, tracker.claims = spans, claims
    tracker.blocks = [
        BlockDraft(1, "module", name, "float32", (1,), set(marks)) for name, marks in drafts.items()
    ]  # fmt: skip
    tracker.phases = [Phase(1, PhaseName.FORWARD, 0, end)]
    return tracker


def owners(entries: History, tracker: TimedTracker) -> list[tuple[int, str, str, Category]]:
    timeline, _ = join(entries, tracker, AllocatorSettings(), ran_out=False)
    return [(block.bytes, block.module, block.op, block.category) for block in timeline.blocks]


def test_a_workspace_belongs_to_the_operator_that_ran_not_to_the_next() -> None:
    """Output first, then a workspace that is kept, as the operator's last event; another operator follows."""
    tracker = seen(
        [Span(0, 2, "addmm", "linear"), Span(2, 3, "gelu", "act")],
        [Claim(0, BASE, 2), Claim(1, BASE + 2048, 3)], 3, addmm={Mark.SAVED_FOR_BACKWARD}, gelu=(),
    )  # fmt: skip
    assert owners(history(SEGMENT, alloc(0, 512), alloc(512, 1000), alloc(2048, 512)), tracker) == [
        (512, "module", "addmm", Category.ACTIVATIONS), (1000, "linear", "addmm: workspace", Category.WORKSPACE),
        (512, "module", "gelu", Category.TEMPORARIES),
    ]  # fmt: skip


def test_what_comes_between_operators_is_nobodys() -> None:
    tracker = seen([Span(0, 1, "addmm", "linear"), Span(2, 3, "gelu", "act")], [], 3)
    found = owners(history(SEGMENT, alloc(0, 512), alloc(512, 512), alloc(1024, 512)), tracker)
    assert [(module, op) for _, module, op, _ in found] == [
        ("linear", "addmm: workspace"), ("", OUTSIDE), ("act", "gelu: workspace")
    ]  # fmt: skip


def test_an_address_that_is_used_again_belongs_to_each_in_its_time() -> None:
    tracker = seen(
        [Span(0, 3, "mm", "one"), Span(4, 5, "add", "two")], [Claim(0, BASE, 3), Claim(1, BASE, 5)], 5, mm=(), add=()
    )
    entries = history(
        SEGMENT, alloc(0, 512), free(0, 512), alloc(0, 512), free(0, 512), alloc(0, 512)
    )  # fmt: skip
    assert [op for _, _, op, _ in owners(entries, tracker)] == ["mm: workspace", "mm", "add"]


def test_memory_that_is_not_the_allocators_is_passed_over() -> None:
    tracker = seen([Span(0, 1, "mm", "one")], [Claim(0, 0x1234, 1)], 1, mm=())
    assert [op for _, _, op, _ in owners(history(SEGMENT, alloc(0, 512)), tracker)] == ["mm: workspace"]


def test_what_follows_the_last_phase_is_left_out() -> None:
    timeline, _ = join(
        history(SEGMENT, alloc(0, 512), free(0, 512), alloc(0, 1024)), seen([], [], 1), AllocatorSettings(),
        ran_out=False,
    )  # fmt: skip
    assert [event.delta_bytes for event in timeline.events] == [512]


def test_a_refused_request_is_the_last_event_with_the_segment_that_it_wanted() -> None:
    entries = history(SEGMENT, alloc(0, 512), Entry(Action.OOM, 7 * MIB, 3 * MIB), free(0, 512))
    tracker = seen([Span(0, 1, "mm", "one"), Span(1, 2, "add", "two")], [], 2)
    timeline, outcome = join(entries, tracker, AllocatorSettings(), ran_out=True)
    assert outcome == RanOut(
        requested_bytes=3 * MIB, free_bytes=7 * MIB, event=1, segment_bytes=20 * MIB, allocated_bytes=512,
        reserved_bytes=2 * MIB,
    )  # fmt: skip
    assert timeline.reserved() == (2 * MIB, 22 * MIB)
    assert (timeline.blocks[1].op, timeline.blocks[1].category) == ("add", Category.TEMPORARIES)


def test_an_out_of_memory_that_the_model_survived_is_no_end() -> None:
    entries = history(SEGMENT, Entry(Action.OOM, 7 * MIB, 3 * MIB), alloc(0, 512))
    timeline, _ = join(entries, seen([], [], 1), AllocatorSettings(), ran_out=False)
    assert [event.delta_bytes for event in timeline.events] == [512]


@pytest.mark.parametrize(
    "entries",
    [
        (alloc(0, 512),), (SEGMENT, alloc(0, 512), alloc(0, 512)), (SEGMENT, alloc(0, 1024), alloc(512, 512)),
        (SEGMENT, free(0, 512)), (Entry(Action.SEGMENT_FREE, BASE, 512), alloc(0, 512)),
        (SEGMENT, alloc(2 * MIB - 512, 1024)),
    ],
)  # fmt: skip
def test_a_history_that_cannot_be_is_refused(entries: tuple[Entry, ...]) -> None:
    with pytest.raises(MeasureError, match="contradicts itself"):
        join(history(*entries), seen([], [], len(entries)), AllocatorSettings(), ran_out=False)
