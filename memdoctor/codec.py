"""Records as JSON values and back; the timeline by columns, with every string and shape once.

A record's field names are its JSON keys. Two steps of BERT-base take some 70 KiB compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from memdoctor.records import (
    Block,
    Category,
    Completed,
    Counters,
    Device,
    Event,
    Examination,
    Outcome,
    Phase,
    PhaseName,
    PhaseWork,
    Provenance,
    RanOut,
    SegmentEvent,
    Timeline,
    Workload,
)

_T = TypeVar("_T")
_MOST_COMPLAINTS = 3
_ADAPTERS: dict[type, Any] = {}  # making one takes longer than using it


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """The blocks of a timeline, a column a field; text and shapes are numbers into the timeline's tables."""

    bytes: list[int]
    allocated_bytes: list[int]
    address: list[int]
    category: list[int]
    module: list[int]
    op: list[int]
    dtype: list[int]
    shape: list[int]


@dataclass(frozen=True, slots=True)
class TimelineColumns:
    """A timeline as it is stored.

    ``events`` holds a block's number plus one, negative for its death; ``phases`` step, name, first event and the
    event after the last; ``segments`` event and bytes reserved (or, negative, released).
    """

    blocks: BlockColumns
    events: list[int]
    phases: list[tuple[int, PhaseName, int, int]]
    segments: list[tuple[int, int]]
    strings: list[str]
    shapes: list[tuple[int, ...]]
    cache_clears: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OutcomeFields:
    """How the run ended; the figures are there when it ran out of memory."""

    kind: Literal["completed", "ran_out"]
    requested_bytes: int | None = None
    free_bytes: int | None = None
    event: int | None = None
    segment_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ExaminationFields:
    """The evidence of an examination as it is stored."""

    workload: Workload
    device: Device
    provenance: Provenance
    outcome: OutcomeFields
    timeline: TimelineColumns
    counters: Counters | None = None
    repeated_micro_steps: int = 0
    work: tuple[PhaseWork, ...] = ()
    step_seconds: float | None = None


def to_json(record: Any) -> dict[str, Any]:
    """A frozen record as JSON values."""
    dumped = _adapter(type(record)).dump_python(record, mode="json")
    assert isinstance(dumped, dict)
    return dumped


def from_json(kind: type[_T], value: Any) -> _T:
    """A record from JSON values; unknown keys are passed over, since keys are only ever added.

    Raises:
        ValueError: a value is missing, of the wrong type, or does not add up.
    """
    from pydantic import ValidationError

    try:
        record = _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise ValueError("; ".join(map(_complaint, error.errors()[:_MOST_COMPLAINTS]))) from error
    assert isinstance(record, kind)
    return record


def _complaint(detail: Any) -> str:
    """One of pydantic's complaints: where, and what."""
    where = ".".join(map(str, detail["loc"]))
    what = str(detail["msg"]).removeprefix("Value error, ")
    return f"{where}: {what}" if where else what


def json_schema(kind: type) -> dict[str, Any]:
    """JSON Schema of a record."""
    made = _adapter(kind).json_schema(mode="serialization")
    assert isinstance(made, dict)
    return made


def _adapter(kind: type) -> Any:
    from pydantic import TypeAdapter

    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def examination_to_json(examination: Examination) -> dict[str, Any]:
    """The evidence as JSON values."""
    return to_json(
        ExaminationFields(
            examination.workload, examination.device, examination.provenance, _outcome_fields(examination.outcome),
            _columns(examination.timeline), examination.counters, examination.repeated_micro_steps,
            examination.work, examination.step_seconds,
        )
    )  # fmt: skip


def examination_from_json(value: Mapping[str, Any]) -> Examination:
    """The inverse of :func:`examination_to_json`.

    Raises:
        ValueError: a part is missing, of the wrong type, or does not add up.
    """
    stored = from_json(ExaminationFields, dict(value))
    return Examination(
        stored.workload, stored.device, stored.provenance, _outcome(stored.outcome), _checked_timeline(stored.timeline),
        stored.counters, stored.repeated_micro_steps, stored.work, stored.step_seconds,
    )  # fmt: skip


def timeline_to_json(timeline: Timeline) -> dict[str, Any]:
    """A timeline as JSON values, by columns."""
    return to_json(_columns(timeline))


def timeline_from_json(value: Any) -> Timeline:
    """The inverse of :func:`timeline_to_json`.

    Raises:
        ValueError: a part is missing, of the wrong type, or does not add up.
    """
    return _checked_timeline(from_json(TimelineColumns, value))


def _checked_timeline(stored: TimelineColumns) -> Timeline:
    try:
        return _timeline(stored)
    except IndexError as error:
        raise ValueError("its timeline names a block, text or shape that is not there") from error


def _outcome_fields(outcome: Outcome) -> OutcomeFields:
    if isinstance(outcome, RanOut):
        return OutcomeFields("ran_out", **to_json(outcome))
    return OutcomeFields("completed")


def _outcome(stored: OutcomeFields) -> Outcome:
    if stored.kind == "completed":
        return Completed()
    if stored.requested_bytes is None or stored.free_bytes is None or stored.event is None:
        raise ValueError("it ran out of memory, but its figures are missing")
    return RanOut(**{item.name: getattr(stored, item.name) for item in fields(RanOut)})


def _columns(timeline: Timeline) -> TimelineColumns:
    strings: dict[str, int] = {}
    shapes: dict[tuple[int, ...], int] = {}

    def texts(get: Callable[[Block], str]) -> list[int]:
        return [strings.setdefault(get(block), len(strings)) for block in timeline.blocks]

    blocks = BlockColumns(
        bytes=[block.bytes for block in timeline.blocks],
        allocated_bytes=[block.allocated_bytes for block in timeline.blocks],
        address=[block.address for block in timeline.blocks],
        category=texts(lambda block: block.category.value),
        module=texts(lambda block: block.module),
        op=texts(lambda block: block.op),
        dtype=texts(lambda block: block.dtype),
        shape=[shapes.setdefault(block.shape, len(shapes)) for block in timeline.blocks],
    )
    return TimelineColumns(
        blocks=blocks,
        events=[event.block + 1 if event.delta_bytes > 0 else -event.block - 1 for event in timeline.events],
        phases=[(phase.step, phase.name, phase.begin, phase.end) for phase in timeline.phases],
        segments=[(segment.event, segment.delta_bytes) for segment in timeline.segments],
        strings=list(strings),
        shapes=list(shapes),
        cache_clears=list(timeline.cache_clears),
    )


def _timeline(stored: TimelineColumns) -> Timeline:
    columns, strings = stored.blocks, stored.strings
    if len({len(getattr(columns, column.name)) for column in fields(columns)}) != 1:
        raise ValueError("the columns of its blocks are of different lengths")
    numbers = (columns.category, columns.module, columns.op, columns.dtype, columns.shape)
    if any(number < 0 for column in numbers for number in column):
        raise IndexError("a negative number")  # which Python would count from the end
    blocks = tuple(
        Block(
            bytes=size, allocated_bytes=allocated, address=address, category=Category(strings[category]),
            module=strings[module], op=strings[op], dtype=strings[dtype], shape=stored.shapes[shape],
        )
        for size, allocated, address, category, module, op, dtype, shape in zip(
            columns.bytes, columns.allocated_bytes, columns.address, columns.category, columns.module, columns.op,
            columns.dtype, columns.shape, strict=True,
        )
    )  # fmt: skip
    return Timeline(
        blocks=blocks,
        events=tuple(_event(number, blocks) for number in stored.events),
        phases=tuple(Phase(*phase) for phase in stored.phases),
        segments=tuple(SegmentEvent(*segment) for segment in stored.segments),
        cache_clears=tuple(stored.cache_clears),
    )


def _event(number: int, blocks: tuple[Block, ...]) -> Event:
    if number == 0:
        raise ValueError("event 0 names no block")
    size = blocks[abs(number) - 1].bytes
    return Event(abs(number) - 1, size if number > 0 else -size)
