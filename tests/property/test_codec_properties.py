"""What holds for every examination: it comes back from its file, its parts add up, and a damaged file is refused."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from memdoctor.codec import examination_from_json, examination_to_json, from_json, to_json
from memdoctor.doctor import conclude
from memdoctor.errors import InputError
from memdoctor.records import (
    Attention,
    Block,
    Category,
    Completed,
    Device,
    Diagnosis,
    Event,
    Examination,
    Phase,
    PhaseName,
    PhaseWork,
    Precision,
    Provenance,
    RanOut,
    SegmentEvent,
    Task,
    Timeline,
    Workload,
)
from memdoctor.reports.documents import diagnosis_document, examination_document, read_diagnosis
from memdoctor.storage import write_document


def cases(number: int) -> settings:
    """So many examples; a busy machine is not a failure."""
    return settings(max_examples=number, suppress_health_check=[HealthCheck.too_slow])


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
COUNTS = st.integers(1, 512)
SHAPES = st.lists(st.integers(0, 4096), max_size=4).map(tuple)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """A block; the allocator sets aside at least what it was asked for."""
    size = draw(st.one_of(st.integers(1, 4096), st.integers(1, 1 << 40)))
    return Block(
        bytes=size, category=draw(st.sampled_from(Category)), module=draw(NAMES), op=draw(NAMES),
        dtype=draw(st.sampled_from(["float32", "float16", "int64", "uint8"])), shape=draw(SHAPES),
        allocated_bytes=size + draw(st.integers(0, 1 << 20)), address=draw(st.integers(0, 1 << 47)),
    )  # fmt: skip


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """A timeline that holds together: what dies was alive, phases tile, and all that is needed is reserved."""
    made = draw(st.lists(blocks(), min_size=1, max_size=12))
    events: list[Event] = []
    alive: list[int] = []
    for number, block in enumerate(made):
        events.append(Event(number, block.bytes))
        alive.append(number)
        for _ in range(draw(st.integers(0, 2))):
            if alive and draw(st.booleans()):
                dead = alive.pop(draw(st.integers(0, len(alive) - 1)))
                events.append(Event(dead, -made[dead].bytes))
    inner = draw(st.lists(st.integers(1, len(events)), max_size=5)) if events else []
    edges = [0, *sorted(inner), len(events)]
    phases = tuple(
        Phase(draw(st.integers(0, 2)), draw(st.sampled_from(PhaseName)), begin, end) for begin, end in pairwise(edges)
    )
    bare = Timeline(tuple(made), tuple(events), phases, ())
    grown = st.builds(SegmentEvent, st.integers(0, len(events) - 1), st.integers(1, 1 << 30))
    segments = (SegmentEvent(0, max(bare.memory_allocated())), *draw(st.lists(grown, max_size=3)))
    return Timeline(bare.blocks, bare.events, bare.phases, segments)


WORKLOADS = st.builds(
    Workload, model=NAMES, task=st.sampled_from(Task), num_labels=COUNTS, batch_size=COUNTS, seq_length=COUNTS,
    padded=st.booleans(), precision=st.sampled_from(Precision), attention=st.none() | st.sampled_from(Attention),
    gradient_checkpointing=st.booleans(), use_reentrant=st.booleans(), optimizer=NAMES,
    gradient_accumulation_steps=COUNTS, max_grad_norm=st.floats(0, 1e6), freeze=st.lists(NAMES, max_size=2).map(tuple),
)  # fmt: skip
DEVICES = st.builds(
    lambda context, more, **rest: Device(context_bytes=context, total_bytes=context + more, **rest),
    context=st.integers(0, 1 << 30), more=st.integers(1, 1 << 41), name=NAMES, context_source=NAMES, source=NAMES,
    compute_capability=st.sampled_from(["6.0", "7.5", "8.9", "10.0"]), context_error_bytes=st.integers(0, 1 << 28),
    other_processes_bytes=st.integers(0, 1 << 30),
)  # fmt: skip
PROVENANCES = st.builds(
    Provenance, mode=st.sampled_from(["simulated", "measured"]), memdoctor=NAMES, torch=NAMES, transformers=NAMES,
    python=NAMES, created=NAMES, model_source=NAMES, attention_kernels=st.lists(NAMES, max_size=2).map(tuple),
    seconds=st.floats(0, 1e6), notes=st.lists(NAMES, max_size=2).map(tuple),
)  # fmt: skip


FLOPS = st.integers(0, 1 << 50)


@st.composite
def examinations(draw: st.DrawFn) -> Examination:
    """An examination; one that ran out did so at the birth of a block."""
    timeline = draw(timelines())
    births = [number for number, event in enumerate(timeline.events) if event.delta_bytes > 0]
    ran_out = st.builds(
        RanOut,
        requested_bytes=st.integers(1, 1 << 40),
        free_bytes=st.integers(0, 1 << 40),
        event=st.sampled_from(births),
    )
    workload = draw(WORKLOADS)
    counted = st.tuples(
        *(st.builds(PhaseWork, step=st.just(p.step), name=st.just(p.name), fp32_flops=FLOPS) for p in timeline.phases)
    )
    return Examination(
        workload, draw(DEVICES), draw(PROVENANCES), draw(st.just(Completed()) | ran_out), timeline,
        repeated_micro_steps=draw(st.integers(0, workload.gradient_accumulation_steps - 1)),
        work=draw(st.just(()) | counted), step_seconds=draw(st.none() | st.floats(1e-6, 1e6)),
    )  # fmt: skip


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder for one example."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@cases(50)
@given(examinations())
def test_an_examination_comes_back_from_json(examination: Examination) -> None:
    text = json.dumps(examination_to_json(examination), allow_nan=False)
    assert examination_from_json(json.loads(text)) == examination


@cases(50)
@given(examinations())
def test_a_diagnosis_comes_back_from_json(examination: Examination) -> None:
    diagnosis = conclude(examination)
    text = json.dumps(to_json(diagnosis), allow_nan=False)
    assert from_json(Diagnosis, json.loads(text)) == diagnosis


@cases(40)
@given(examinations(), st.sampled_from(["a.json", "a.json.gz"]))
def test_a_saved_file_says_what_the_record_said(examination: Examination, name: str) -> None:
    expected = conclude(examination)
    with folder() as path:
        write_document(path / name, examination_document(examination), force=False)
        assert read_diagnosis(path / name, conclude) == expected
        write_document(path / f"diagnosis-{name}", diagnosis_document(expected), force=False)
        assert read_diagnosis(path / f"diagnosis-{name}", conclude) == expected


@cases(50)
@given(examinations())
def test_every_breakdown_sums_to_the_card(examination: Examination) -> None:
    diagnosis = conclude(examination)
    total, context = examination.device.total_bytes, examination.device.context_bytes
    for parts in (diagnosis.breakdown, *(phase.breakdown for phase in diagnosis.phases)):
        assert sum(size for _, size in parts.items()) == total
        assert parts.context == context
    for phase in diagnosis.phases:
        assert phase.breakdown.allocated == phase.peak_allocated_bytes
        assert phase.end_allocated_bytes <= phase.peak_allocated_bytes
    assert max(phase.peak_allocated_bytes for phase in diagnosis.phases) == diagnosis.peak.allocated_bytes
    assert diagnosis.verdict.headroom_bytes == diagnosis.breakdown.free


@cases(50)
@given(examinations())
def test_modules_and_tensors_are_the_peak_told_twice(examination: Examination) -> None:
    diagnosis = conclude(examination)
    peak = diagnosis.peak.allocated_bytes
    assert sum(use.total for use in diagnosis.modules) == sum(group.bytes for group in diagnosis.tensors) == peak
    for category in Category:
        held = getattr(diagnosis.breakdown, category.value)
        assert held == sum(getattr(use, category.value) for use in diagnosis.modules)
        assert held == sum(group.bytes for group in diagnosis.tensors if group.category is category)


def read_damaged(content: bytes, name: str) -> Diagnosis | None:
    """What is read from the file, or ``None`` where it was refused as it should be."""
    with folder() as path:
        (path / name).write_bytes(content)
        with suppress(InputError):
            return read_diagnosis(path / name, conclude)
    return None


DAMAGE = st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255))
# Characters that keep JSON whole, so that the damage reaches the records.
LIKELY_DAMAGE = st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(b'0123456789-e.,"]['))


def damaged(content: bytes, damage: tuple[float, int]) -> bytes:
    """The content with one byte at that share of its length changed."""
    share, byte = damage
    position = int(share * len(content))
    return content[:position] + bytes([byte]) + content[position + 1 :]


@cases(100)
@given(examinations(), DAMAGE | LIKELY_DAMAGE)
def test_one_wrong_byte_in_plain_json_is_refused_or_read_as_another_file(
    examination: Examination, damage: tuple[float, int]
) -> None:
    content = json.dumps(examination_document(examination), separators=(",", ":")).encode()
    read_damaged(damaged(content, damage), "a.json")


WRONG_NUMBERS = st.sampled_from([-(10**30), -1, 0, 1, 2, 7, 512, 10**30]) | st.integers(-20, 20)


def numbers_in(value: Any) -> Iterator[tuple[list[Any], int]]:
    """Every number in nested lists and objects, as the list that holds it and its place there."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, list):
            yield from ((item, place) for place, number in enumerate(item) if isinstance(number, int))
        if isinstance(item, list | dict):
            yield from numbers_in(item)


@cases(150)
@given(examinations(), WRONG_NUMBERS, st.data())
def test_one_wrong_number_in_a_timeline_is_refused_or_read_as_another(
    examination: Examination, number: int, data: st.DataObject
) -> None:
    document = json.loads(json.dumps(examination_document(examination)))
    holder, place = data.draw(st.sampled_from(list(numbers_in(document["timeline"]))))
    holder[place] = number
    read_damaged(json.dumps(document).encode(), "a.json")


@cases(50)
@given(examinations(), WRONG_NUMBERS, st.sampled_from(["event", "requested_bytes", "free_bytes"]))
def test_a_wrong_number_in_the_outcome_is_refused_or_read_as_another(
    examination: Examination, number: int, figure: str
) -> None:
    document = examination_document(examination)
    document["outcome"] = {"kind": "ran_out", "event": 0, "requested_bytes": 1, "free_bytes": 0, figure: number}
    read_damaged(json.dumps(document).encode(), "a.json")


@cases(40)
@given(examinations(), DAMAGE)
def test_one_wrong_byte_in_a_compressed_file_is_noticed_or_harmless(
    examination: Examination, damage: tuple[float, int]
) -> None:
    content = gzip.compress(json.dumps(examination_document(examination)).encode(), mtime=0)
    assert read_damaged(damaged(content, damage), "a.json.gz") in (None, conclude(examination))


@cases(40)
@given(examinations(), st.floats(0, 1, exclude_max=True), st.booleans())
def test_a_file_cut_off_is_refused(examination: Examination, share: float, compressed: bool) -> None:
    plain = json.dumps(examination_document(examination)).encode()
    content = gzip.compress(plain, mtime=0) if compressed else plain
    assert read_damaged(content[: int(share * len(content))], "a.json") is None


@cases(60)
@given(st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_no_file_of_any_bytes_is_read_as_a_diagnosis(content: bytes) -> None:
    assert read_damaged(content, "a.json") is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@cases(60)
@given(examinations(), st.data())
def test_any_value_in_place_of_another_is_refused_or_read(examination: Examination, data: st.DataObject) -> None:
    document = examination_document(examination)
    holder, key = document, data.draw(st.sampled_from(sorted(document)))
    while isinstance(holder[key], dict) and holder[key] and data.draw(st.booleans()):
        holder = holder[key]
        key = data.draw(st.sampled_from(sorted(holder)))
    holder[key] = data.draw(JSON_VALUES)
    read_damaged(json.dumps(document).encode(), "a.json")
