"""A snapshot is what PyTorch's own reader and viewer take, and its sums are memdoctor's to the byte."""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch.cuda._memory_viz as reader

from memdoctor.doctor import conclude
from memdoctor.errors import InputError
from memdoctor.records import Diagnosis, Examination, RanOut
from memdoctor.reports.handover.snapshot import snapshot_of, snapshot_pickle

# What unpickle of MemoryViz.js knows, by the names of pickletools.
KNOWN_OPCODES = {
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT",
    "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK",
    "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3",
}  # fmt: skip


@pytest.fixture
def step(new_recording: Callable[[], Any]) -> Examination:
    """Two segments of 2 MiB and 20 MiB with blocks of 512 B grain, laid out as the allocator does."""
    tape = new_recording()
    tape.phase(0, "setup")
    tape.reserve(5000)
    weight = tape.birth(400, "parameters", module="net", allocated=512)
    tape.phase(1, "forward")
    kept = [tape.birth(size, module="net.layer.0", allocated=512) for size in (300, 200)]
    tape.phase(1, "backward")
    tape.death(kept[0])
    gradient = tape.birth(400, "gradients", module="net", allocated=512)
    tape.death(kept[1])
    made = tape.examination(total=100_000)
    assert (weight, gradient) == (0, 3)
    addresses = (0, 512, 1024, 512)
    blocks = [replace(b, address=a) for b, a in zip(made.timeline.blocks, addresses, strict=True)]
    return replace(made, timeline=replace(made.timeline, blocks=tuple(blocks)))


def held(snapshot: dict[str, Any], births: str = "alloc", deaths: str = "free_completed") -> list[int]:
    """Bytes after each entry of these actions."""
    now, found = 0, [0]
    for entry in snapshot["device_traces"][0]:
        now += entry["size"] * ((entry["action"] == births) - (entry["action"] == deaths))
        found.append(now)
    return found


def test_a_step_entry_by_entry(step: Examination) -> None:
    entries = snapshot_of(conclude(step))["device_traces"][0]
    assert [(e["action"], e["addr"], e["size"], e["time_us"]) for e in entries] == [
        ("segment_alloc", 0, 5000, 0), ("alloc", 0, 400, 0),
        ("alloc", 512, 300, 1), ("alloc", 1024, 200, 2),
        ("free_requested", 512, 300, 3), ("free_completed", 512, 300, 3), ("alloc", 512, 400, 4),
        ("free_requested", 1024, 200, 5), ("free_completed", 1024, 200, 5),
        ("snapshot", 0, 0, 6),
    ]  # fmt: skip
    assert [e["category"] for e in entries if "category" in e] == [
        "parameters", "activations", "activations", "gradients", "unknown",
    ]  # fmt: skip
    assert entries[2]["frames"] == [
        {"filename": "net.layer.0", "line": 0, "name": "aten.empty.default"},
        {"filename": "activations", "line": 0, "name": "uint8 300"},
        {"filename": "step 1, forward", "line": 1, "name": "event"},
    ]
    assert all(e["frames"] for e in entries[:-1])


def test_what_is_held_at_the_end_block_by_block(step: Examination) -> None:
    (segment,) = snapshot_of(conclude(step))["segments"]
    assert {key: segment[key] for key in ("device", "address", "total_size", "allocated_size", "requested_size")} == {
        "device": 0, "address": 0, "total_size": 5000, "allocated_size": 1024, "requested_size": 800,
    }  # fmt: skip
    assert [(b["address"], b["size"], b["requested_size"], b["state"]) for b in segment["blocks"]] == [
        (0, 512, 400, "active_allocated"), (512, 512, 400, "active_allocated"), (1024, 3976, 0, "inactive"),
    ]  # fmt: skip


def test_phases_and_what_a_trace_cannot_show_are_annotations(step: Examination) -> None:
    diagnosis = replace(conclude(step), repeated_micro_steps=3)
    said = snapshot_of(diagnosis)["external_annotations"]
    assert [(a["name"], a["stage"], a["time_us"]) for a in said if a["name"].startswith(("setup", "step"))] == [
        ("setup", "START", 0), ("setup", "END", 1), ("step 1, forward", "START", 1), ("step 1, forward", "END", 3),
        ("step 1, backward", "START", 3), ("step 1, backward", "END", 6),
    ]  # fmt: skip
    notes = " ".join(a["name"] for a in said)
    assert "3 micro-steps of each step are not in it" in notes
    assert "how long anything took is not known" in notes


def test_sums_are_those_of_the_diagnosis_to_the_byte(two_real_steps: Diagnosis) -> None:
    snapshot, timeline = snapshot_of(two_real_steps), two_real_steps.timeline
    assert timeline is not None
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    active = [block for block in blocks if block["state"] == "active_allocated"]
    assert sum(block["size"] for block in active) == timeline.memory_allocated()[-1]
    assert sum(block["requested_size"] for block in active) == timeline.in_use()[-1]
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == timeline.reserved()[-1]
    for segment in snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    assert max(held(snapshot)) == two_real_steps.peak.allocated_bytes
    reserved = held(snapshot, "segment_alloc", "segment_free")
    assert (max(reserved), reserved[-1]) == (two_real_steps.peak.reserved_bytes, timeline.reserved()[-1])


def test_every_block_lies_in_a_segment_whenever_it_is_alive(two_real_steps: Diagnosis) -> None:
    # MemoryViz.js walks the trace back from the end, and fails where a block lies in no segment.
    snapshot = snapshot_of(two_real_steps)
    segments = {segment["address"]: segment["total_size"] for segment in snapshot["segments"]}
    alive = {
        block["address"]: block["size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }
    for entry in reversed(snapshot["device_traces"][0]):
        match entry["action"]:
            case "alloc":
                assert alive.pop(entry["addr"]) >= entry["size"]
            case "free_completed":
                assert entry["addr"] not in alive
                alive[entry["addr"]] = entry["size"]
                assert any(
                    at <= entry["addr"] and entry["addr"] + entry["size"] <= at + segments[at] for at in segments
                )
            case "segment_alloc":
                assert segments.pop(entry["addr"]) == entry["size"]
            case "segment_free":
                segments[entry["addr"]] = entry["size"]
    assert (alive, segments) == ({}, {})


def test_pytorchs_own_reader_takes_it(two_real_steps: Diagnosis) -> None:
    snapshot = pickle.loads(snapshot_pickle(two_real_steps))
    timeline = two_real_steps.timeline
    assert timeline is not None
    told = reader.segsum(snapshot)
    assert f"segments: {len(snapshot['segments'])}\n" in told
    assert f"total_reserved: {reader.Bytes(timeline.reserved()[-1])}\n" in told
    assert f"total_allocated: {reader.Bytes(timeline.in_use()[-1])}\n" in told
    lines = reader.memory(snapshot, format_flamegraph=str)
    assert "parameters" in lines
    assert sum(int(line.rpartition(" ")[2]) for line in lines.splitlines()) == timeline.reserved()[-1]
    assert reader.segments(snapshot, format_flamegraph=str).startswith("stream_0;seg_")
    assert "cudaMalloc(" in reader.trace(snapshot)
    for make in (reader.trace_plot, reader.segment_plot):
        assert "MemoryViz.js" in make(snapshot)


def test_the_viewer_knows_every_opcode(two_real_steps: Diagnosis) -> None:
    content = snapshot_pickle(two_real_steps)
    assert content[:2] == b"\x80\x04"
    assert {opcode.name for opcode, _, _ in pickletools.genops(content)} <= KNOWN_OPCODES


def test_the_same_diagnosis_gives_the_same_bytes(two_real_steps: Diagnosis) -> None:
    assert snapshot_pickle(two_real_steps) == snapshot_pickle(two_real_steps)


def test_a_simulated_step_that_ran_out_goes_on_after_the_oom(step: Examination) -> None:
    full = replace(step, outcome=RanOut(requested_bytes=200, free_bytes=7, event=2))
    entries = snapshot_of(conclude(full))["device_traces"][0]
    assert [e["action"] for e in entries[:5]] == ["segment_alloc", "alloc", "alloc", "oom", "alloc"]
    assert (entries[3]["size"], entries[3]["device_free"], "addr" in entries[3]) == (200, 7, False)


def test_a_measured_step_that_ran_out_ends_with_the_oom(new_recording: Callable[[], Any]) -> None:
    tape = new_recording()
    tape.phase(1, "forward")
    tape.reserve(2000)
    tape.birth(300, allocated=512)
    tape.reserve(4000)
    tape.birth(4000)  # which was refused: what it would have taken is the timeline's last event
    made = tape.examination(total=100_000, outcome=RanOut(requested_bytes=4000, free_bytes=100, event=1))
    blocks = (made.timeline.blocks[0], replace(made.timeline.blocks[1], address=0))
    made = replace(
        made, provenance=replace(made.provenance, mode="measured"), timeline=replace(made.timeline, blocks=blocks)
    )
    snapshot = snapshot_of(conclude(made))
    assert [e["action"] for e in snapshot["device_traces"][0]] == ["segment_alloc", "alloc", "oom", "snapshot"]
    assert [segment["total_size"] for segment in snapshot["segments"]] == [2000]
    assert any("the request that was refused is not in it" in a["name"] for a in snapshot["external_annotations"])


def test_a_diagnosis_of_an_old_file_has_none(diagnosis: Diagnosis) -> None:
    with pytest.raises(InputError, match="no timeline"):
        snapshot_pickle(diagnosis)
