"""A trace in Chrome's JSON format, which Perfetto and chrome://tracing open: memory as counters, phases as slices.

Source of the format: "Trace Event Format", Google; ``M`` metadata, ``X`` complete events, ``C`` counters, ``i``
instants. A counter's series are stacked by chrome://tracing; Perfetto draws a track for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from memdoctor.records import Diagnosis, Timeline
from memdoctor.reports.charts.stack import stack_of
from memdoctor.reports.handover.phases import label, notes_of, timeline_of

MOST = 20_000  # instants: of 100,000 events, a file of some 10 MB
PROCESS, PHASES = 1, 1
CATEGORIES, ALLOCATED, RESERVED = "bytes by category", "memory_allocated", "memory_reserved"


def trace_json(diagnosis: Diagnosis, _document: object = None) -> bytes:
    """The trace as a file.

    Raises:
        InputError: the diagnosis has no timeline.
    """
    return json.dumps(trace_of(diagnosis), separators=(",", ":"), allow_nan=False).encode()


def trace_of(diagnosis: Diagnosis, most: int = MOST) -> dict[str, Any]:
    """The trace; ``ts`` and ``dur`` count events, not time. A counter's value is that after the event of its ``ts``.

    Of more than ``most`` events the highest of each run of neighbours are shown, with the peak and the ends of phases.

    Raises:
        InputError: the diagnosis has no timeline.
    """
    timeline = timeline_of(diagnosis)
    stack = stack_of(timeline, most)
    allocated = timeline.memory_allocated()
    events = [*_names(diagnosis), *_slices(timeline)]
    for index, number in enumerate(stack.events):
        events.append(_counter(CATEGORIES, number, {c.value: column[index] for c, column in stack.columns.items()}))
        events.append(_counter(ALLOCATED, number, {"bytes": allocated[number]}))
        events.append(_counter(RESERVED, number, {"bytes": stack.reserved[index]}))
    events.append(_instant("peak", stack.peak))
    ran_out = diagnosis.ran_out
    if ran_out is not None and ran_out.event is not None:
        events.append(_instant(f"out of memory: {ran_out.op} in {ran_out.module or 'no module'}", ran_out.event))
    notes = list(notes_of(diagnosis))
    if stack.thinned:
        notes.append(f"{len(stack.events)} of {stack.of} events are shown, each the highest of its neighbours")
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "memdoctor": diagnosis.provenance.memdoctor, "mode": diagnosis.provenance.mode,
            "model": diagnosis.workload.model, "device": diagnosis.device.name, "notes": "; ".join(notes),
        },
    }  # fmt: skip


def _names(diagnosis: Diagnosis) -> Iterator[dict[str, Any]]:
    workload = diagnosis.workload
    process = f"{workload.model}, batch {workload.batch_size} x {workload.seq_length}, on {diagnosis.device.name}"
    yield {"ph": "M", "pid": PROCESS, "tid": 0, "name": "process_name", "args": {"name": process}}
    yield {"ph": "M", "pid": PROCESS, "tid": PHASES, "name": "thread_name", "args": {"name": "phases"}}


def _slices(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Steps, and the phases within them."""
    steps: dict[int, tuple[int, int]] = {}
    for phase in timeline.phases:
        begin, _ = steps.get(phase.step, (phase.begin, phase.end))
        steps[phase.step] = (begin, phase.end)
    for step, (begin, end) in steps.items():
        yield _slice(f"step {step}" if step else "before the first step", "step", begin, end, {})
    for phase in timeline.phases:
        yield _slice(phase.name.value, "phase", phase.begin, phase.end, {"phase": label(phase)})


def _slice(name: str, category: str, begin: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X", "pid": PROCESS, "tid": PHASES, "name": name, "cat": category, "ts": begin, "dur": end - begin,
        "args": args,
    }  # fmt: skip


def _counter(name: str, event: int, values: dict[str, int]) -> dict[str, Any]:
    return {"ph": "C", "pid": PROCESS, "tid": 0, "name": name, "ts": event, "args": values}


def _instant(name: str, event: int) -> dict[str, Any]:
    return {"ph": "i", "pid": PROCESS, "tid": PHASES, "name": name, "cat": "memory", "ts": event, "s": "p"}
