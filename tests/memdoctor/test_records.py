"""Records check themselves when they are built: one that exists adds up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from memdoctor.doctor import conclude
from memdoctor.records import (
    Block,
    Breakdown,
    Category,
    Counters,
    Device,
    Event,
    Examination,
    Peak,
    Phase,
    PhaseName,
    SegmentEvent,
    Timeline,
    Workload,
)

FOUR_BYTES = Block(
    bytes=4, category=Category.ACTIVATIONS, module="", op="", dtype="float32", shape=(1,), allocated_bytes=512,
    address=0,
)  # fmt: skip
BIRTH, DEATH = Event(0, 4), Event(0, -4)


def timeline(*events: Event, blocks: int = 1, phases: tuple[tuple[int, int], ...] | None = None) -> Timeline:
    """A timeline over blocks of four bytes; one phase of all events unless told."""
    spans = phases if phases is not None else ((0, len(events)),)
    named = tuple(Phase(1, PhaseName.FORWARD, begin, end) for begin, end in spans)
    return Timeline((FOUR_BYTES,) * blocks, events, named, (SegmentEvent(0, 512),) if events else ())


@pytest.mark.parametrize(
    "events",
    [(BIRTH,), (BIRTH, DEATH), (BIRTH, Event(1, 4), DEATH, Event(1, -4)), (Event(1, 4), BIRTH, Event(1, -4))],
    ids=["stays", "dies", "interleaved", "any-order"],
)
def test_a_balanced_timeline_is_built(events: tuple[Event, ...]) -> None:
    assert timeline(*events, blocks=2).events == events


@pytest.mark.parametrize(
    "events",
    [
        (DEATH,),
        (BIRTH, BIRTH),
        (BIRTH, DEATH, DEATH),
        (BIRTH, DEATH, BIRTH),
        (Event(0, 5),),
        (BIRTH, Event(0, -3)),
        (Event(0, 0),),
    ],
    ids=["unborn", "twice", "dies-twice", "reborn", "wrong-size", "dies-smaller", "nothing"],
)
def test_an_event_out_of_turn_is_refused(events: tuple[Event, ...]) -> None:
    with pytest.raises(ValueError, match="block 0"):
        timeline(*events)


@pytest.mark.parametrize("number", [-1, 1, 10**9])
def test_an_event_of_a_block_that_is_not_there_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="block"):
        timeline(Event(number, 4))


@pytest.mark.parametrize("size", [0, -4])
def test_a_block_has_at_least_one_byte(size: int) -> None:
    """Storages of zero bytes never reach the allocator; one of them would be born and not be found alive."""
    with pytest.raises(ValueError, match=r"block|bytes"):
        Timeline(
            (replace(FOUR_BYTES, bytes=size),), (Event(0, size),), (Phase(1, PhaseName.FORWARD, 0, 1),),
            (SegmentEvent(0, 512),),
        )  # fmt: skip


@pytest.mark.parametrize("number", [-1, 1, 10**9])
def test_a_segment_of_an_event_that_is_not_there_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="segment"):
        Timeline((FOUR_BYTES,), (BIRTH,), (Phase(1, PhaseName.FORWARD, 0, 1),), (SegmentEvent(number, 512),))


@pytest.mark.parametrize(
    "spans", [((0, 2),), ((0, 1), (1, 2)), ((0, 0), (0, 2)), ((0, 1), (1, 1), (1, 2)), ((0, 2), (2, 2))]
)
def test_phases_that_tile_the_events_are_built_empty_ones_too(spans: tuple[tuple[int, int], ...]) -> None:
    assert len(timeline(BIRTH, DEATH, phases=spans).phases) == len(spans)


@pytest.mark.parametrize(
    "spans",
    [(), ((0, 1),), ((1, 2),), ((0, 1), (0, 2)), ((0, 0), (1, 2)), ((0, 3),), ((0, 2), (2, 1), (1, 2)), ((-1, 2),)],
    ids=["none", "short", "late", "overlap", "gap", "long", "backwards", "negative"],
)
def test_phases_that_do_not_tile_the_events_are_refused(spans: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="phases"):
        timeline(BIRTH, DEATH, phases=spans)


def test_a_timeline_runs_its_sums_event_by_event(recording: Any) -> None:
    recording.phase(1, "forward")
    recording.reserve(2048)
    kept = recording.birth(100, allocated=512)
    passing = recording.birth(200, allocated=1024)
    recording.death(passing)
    recording.reserve(1024)
    recording.birth(50, allocated=512)
    recording.reserve(-1024)
    recording.death(kept)
    made = recording.timeline()
    assert made.in_use() == (100, 300, 100, 150, 50)
    assert made.memory_allocated() == (512, 1536, 512, 1024, 512)
    assert made.reserved() == (2048, 2048, 2048, 3072, 2048)
    assert [made.alive_after(event) for event in range(5)] == [(0,), (0, 1), (0,), (0, 2), (2,)]


@pytest.mark.parametrize("name", [item.name for item in fields(Breakdown) if item.name != "free"])
def test_no_part_of_a_breakdown_is_negative(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is negative"):
        Breakdown(**{name: -1})


def test_free_is_negative_by_what_is_missing() -> None:
    parts = Breakdown(
        parameters=1, gradients=2, optimizer_state=4, activations=8, inputs_and_buffers=16, autocast_copies=32,
        temporaries=64, workspace=128, allocator_overhead=256, context=512, other_processes=1024, free=-5,
    )  # fmt: skip
    assert (parts.allocated, parts.reserved, parts.device) == (255, 511, 2047)
    assert list(dict(parts.items()))[:4] == ["parameters", "gradients", "optimizer_state", "activations"]
    assert sum(dict(parts.items()).values()) == 2042


LADDER = {"allocated_bytes": 10, "max_memory_allocated_bytes": 20, "reserved_bytes": 30, "device_bytes": 40}


def test_a_peak_may_have_equal_figures() -> None:
    assert Peak(**dict.fromkeys(LADDER, 7), phase="backward", step=1).device_bytes == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allocated_bytes", 21),
        ("max_memory_allocated_bytes", 9),
        ("max_memory_allocated_bytes", 31),
        ("reserved_bytes", 19),
        ("reserved_bytes", 41),
        ("device_bytes", 29),
    ],
)
def test_a_peak_out_of_order_is_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match="out of order"):
        Peak(**{**LADDER, name: value}, phase="backward", step=1)


@pytest.mark.parametrize(
    "name", ["num_labels", "batch_size", "seq_length", "gradient_accumulation_steps", "world_size"]
)
@pytest.mark.parametrize("value", [0, -1])
def test_counts_of_a_workload_are_at_least_one(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        Workload(**{"model": "bert", name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", [-1.0, -0.001, float("nan"), float("inf")])
def test_a_clipping_norm_that_no_file_could_hold_is_refused(norm: float) -> None:
    with pytest.raises(ValueError, match="max_grad_norm"):
        Workload(model="bert", max_grad_norm=norm)


def test_a_clipping_norm_of_zero_means_no_clipping() -> None:
    assert Workload(model="bert", max_grad_norm=0.0).max_grad_norm == 0


@pytest.mark.parametrize("name", [field.name for field in fields(Counters)])
def test_a_counter_is_not_negative(name: str) -> None:
    counted = dict.fromkeys((field.name for field in fields(Counters)), 0)
    assert getattr(Counters(**counted), name) == 0
    with pytest.raises(ValueError, match=f"{name} is -5"):
        Counters(**{**counted, name: -5})


def card(**changes: Any) -> Device:
    """A card that is in order, with changes."""
    figures = {"total_bytes": 1000, "context_bytes": 100, "context_error_bytes": 10, "compute_capability": "7.5"}
    return Device(**{"name": "card", "context_source": "", "source": "", **figures, **changes})


@pytest.mark.parametrize("text", ["", "7", "7.", ".5", "7.x", "seven", "7.5.1", "-7.5", "7,5", "sm_75"])
def test_a_capability_is_two_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="capability"):
        card(compute_capability=text)


def test_capabilities_compare_as_numbers() -> None:
    assert card(compute_capability="10.0").capability > card(compute_capability="8.6").capability == (8, 6)


@pytest.mark.parametrize("total", [0, 99, 100])
def test_a_card_has_more_than_its_context(total: int) -> None:
    with pytest.raises(ValueError, match=f"card: {total} B in all, 100 B of them context"):
        card(total_bytes=total)


def test_the_allocator_can_reserve_what_context_and_other_processes_leave() -> None:
    assert card(other_processes_bytes=300).allocator_limit_bytes == 600


def test_a_diagnosis_that_adds_up_is_built(two_steps: Examination) -> None:
    diagnosis = conclude(two_steps)
    assert diagnosis.fits
    assert replace(diagnosis) == diagnosis


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda d: {"breakdown": replace(d.breakdown, free=d.breakdown.free + 1)}, "parts sum to 10001 B"),
        (lambda d: {"device": replace(d.device, total_bytes=9_999)}, "not 9999 B|has 9999 B"),
        (
            lambda d: {"breakdown": replace(d.breakdown, activations=1, free=d.breakdown.free + 999)},
            "not that of the peak",
        ),
        (
            lambda d: {"breakdown": replace(d.breakdown, allocator_overhead=5, free=d.breakdown.free - 5)},
            "not that of the peak",
        ),
        (lambda d: {"peak": replace(d.peak, allocated_bytes=0)}, "not that of the peak"),
        (lambda d: {"verdict": replace(d.verdict, headroom_bytes=1)}, "headroom"),
    ],
    ids=["free", "card", "category", "overhead", "peak", "headroom"],
)
def test_a_diagnosis_that_does_not_add_up_is_refused(
    two_steps: Examination, change: Callable[[Any], dict[str, Any]], complaint: str
) -> None:
    diagnosis = conclude(two_steps)
    with pytest.raises(ValueError, match=complaint):
        replace(diagnosis, **change(diagnosis))


@pytest.mark.parametrize("record", [BIRTH, FOUR_BYTES, Breakdown(), Workload(model="bert"), card()], ids=type)
def test_records_are_frozen(record: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(record, fields(record)[0].name, None)
