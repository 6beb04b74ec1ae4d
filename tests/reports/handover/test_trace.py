"""A trace keeps to the rules of its format, and its counters are the timeline's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.doctor import conclude
from memdoctor.errors import InputError
from memdoctor.records import Diagnosis, Examination, RanOut
from memdoctor.reports.handover.trace import trace_json, trace_of

RULES: dict[str, dict[str, type]] = {
    "M": {"args": dict},
    "X": {"ts": int, "dur": int, "args": dict, "cat": str},
    "C": {"ts": int, "args": dict},
    "i": {"ts": int, "s": str},
}
"""What an event of each kind must have beside its name, process and thread ("Trace Event Format", Google)."""


def check(trace: dict[str, Any]) -> None:
    """Hold a trace to the rules: what every event has, counters of numbers, slices that nest."""
    assert isinstance(trace["otherData"], dict)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        for key, kind in {"name": str, "pid": int, "tid": int, **RULES[event["ph"]]}.items():
            assert isinstance(event[key], kind), (key, event)
        assert event.get("ts", 0) >= 0
        if event["ph"] == "C":
            assert event["args"]
            assert all(isinstance(value, int) for value in event["args"].values())
    named = {event["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert named == {"process_name", "thread_name"}
    slices = [(e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if e["ph"] == "X"]
    for begin, end in slices:
        assert begin <= end
        for other, its_end in slices:
            apart = end <= other or its_end <= begin
            nested = (begin <= other and its_end <= end) or (other <= begin and end <= its_end)
            assert apart or nested


def counters(trace: dict[str, Any], name: str) -> list[tuple[int, dict[str, int]]]:
    """Instants and values of one counter."""
    return [(e["ts"], e["args"]) for e in trace["traceEvents"] if e["ph"] == "C" and e["name"] == name]


def test_the_rules_are_kept(two_real_steps: Diagnosis) -> None:
    check(json.loads(trace_json(two_real_steps)))


def test_counters_after_each_event(two_steps: Examination) -> None:
    trace = trace_of(conclude(two_steps))
    check(trace)
    timeline = two_steps.timeline
    by_category = counters(trace, "bytes by category")
    assert [ts for ts, _ in by_category] == list(range(len(timeline.events)))
    assert [sum(values.values()) for _, values in by_category] == list(timeline.in_use())
    assert max(by_category, key=lambda item: sum(item[1].values()))[1] == {
        "parameters": 600, "gradients": 400, "optimizer_state": 1200, "activations": 1000, "inputs_and_buffers": 16,
        "temporaries": 0,
    }  # fmt: skip
    assert [values["bytes"] for _, values in counters(trace, "memory_allocated")] == list(timeline.memory_allocated())
    assert [values["bytes"] for _, values in counters(trace, "memory_reserved")] == list(timeline.reserved())


def test_phases_lie_within_their_steps(two_steps: Examination) -> None:
    trace = trace_of(conclude(two_steps))
    slices = [(e["cat"], e["name"], e["ts"], e["dur"]) for e in trace["traceEvents"] if e["ph"] == "X"]
    assert slices[:3] == [
        ("step", "before the first step", 0, 2),
        ("step", "step 1", 2, 14),
        ("step", "step 2", 16, 12),
    ]
    assert slices[3:6] == [("phase", "setup", 0, 2), ("phase", "forward", 2, 5), ("phase", "backward", 7, 4)]
    assert ("phase", "optimizer", 25, 0) in slices
    assert "how long anything took is not known" in trace["otherData"]["notes"]


def test_the_peak_and_the_oom_are_marked(two_steps: Examination) -> None:
    full = replace(two_steps, outcome=RanOut(requested_bytes=500, free_bytes=7, event=3))
    marks = [(e["name"], e["ts"]) for e in trace_of(conclude(full))["traceEvents"] if e["ph"] == "i"]
    assert marks == [("peak", 21), ("out of memory: aten.gelu.default in net.layer.0", 3)]


def test_a_long_timeline_is_thinned_and_says_so(two_real_steps: Diagnosis) -> None:
    trace = trace_of(two_real_steps, most=10)
    check(trace)
    shown = counters(trace, "bytes by category")
    assert two_real_steps.timeline is not None
    assert len(shown) < len(two_real_steps.timeline.events)
    assert max(sum(values.values()) for _, values in shown) == two_real_steps.peak.allocated_bytes
    assert f"{len(shown)} of {len(two_real_steps.timeline.events)} events are shown" in trace["otherData"]["notes"]


def test_a_diagnosis_of_an_old_file_has_none(diagnosis: Diagnosis) -> None:
    with pytest.raises(InputError, match="no timeline"):
        trace_json(diagnosis)
