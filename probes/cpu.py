"""The CPU probe: the real training step with real numbers on this machine's processor."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from memdoctor.errors import MemdoctorError
from memdoctor.probes import STEPS
from memdoctor.probes.adapting import base_of
from memdoctor.probes.attribution import category_of
from memdoctor.probes.autocast_copies import CopyMarkingTracker
from memdoctor.probes.failures import host_out_of_memory, refusal
from memdoctor.probes.host import forget_peak, peak_resident_bytes, with_what_is_held
from memdoctor.probes.models import attention_of
from memdoctor.probes.modules import ModuleClock
from memdoctor.probes.notes import training_notes
from memdoctor.probes.preparing import without_collection
from memdoctor.probes.provenance import kernels_in, provenance_of
from memdoctor.probes.real import Subject, batches_on, make_up_weights, real_subject
from memdoctor.probes.tracker import Tracker, watching
from memdoctor.probes.watch import mark_model, train_watched
from memdoctor.records import (
    Block,
    Completed,
    Device,
    Event,
    Examination,
    PhaseName,
    SegmentEvent,
    Timeline,
    Workload,
)
from memdoctor.units import format_bytes

CPU = torch.device("cpu")
NOT_SEEN = (
    "measured on the CPU: the tensors of the step, without what kernels take while they run, and with kernels and "
    "attention of the CPU, not of a GPU; there is no caching allocator, so reserved is allocated"
)


def run_on_cpu(
    workload: Workload, device: Device, config: Mapping[str, Any], model_source: str, steps: int = STEPS
) -> Examination:
    """Run ``steps`` optimizer steps of ``workload`` on the CPU.

    The examination's device is ``device``, this machine, with what its processes held when the worker began.

    Raises:
        InputError: the model, its weights, head, attention or optimizer do not exist, or the factory fails.
        MeasureError: the model's code refuses the step, or the machine has no memory left.
    """
    started = time.perf_counter()
    resets = forget_peak()
    here = with_what_is_held(device)
    subject = ready_subject(config, workload)
    workload = replace(workload, attention=attention_of(base_of(subject.model)))
    recording = _record(workload, subject, steps)
    provenance = provenance_of(
        "measured", model_source, started,
        attention_kernels=kernels_in({block.op for block in recording.timeline.blocks}, workload.attention),
        notes=(
            NOT_SEEN, subject.weights, *_peak_note(resets),
            *training_notes(workload, subject.model, recording.without_gradient),
        ),
    )  # fmt: skip
    return Examination(workload, here, provenance, Completed(), recording.timeline)


def ready_subject(config: Mapping[str, Any], workload: Workload) -> Subject:
    """The workload's model with values in its weights, and its batches; the same each time."""
    with _memory_told():
        subject = real_subject(config, workload)
        if subject.made_up:
            make_up_weights(subject.model)
    torch.manual_seed(0)
    return subject


@contextmanager
def _memory_told() -> Iterator[None]:
    """A machine that has no memory left is told as such, whoever asked for it."""
    try:
        yield
    except Exception as error:
        full = host_out_of_memory(error.__cause__ or error)
        if full is None:
            raise
        raise full from error


@dataclass(frozen=True, slots=True)
class _Recording:
    timeline: Timeline
    without_gradient: tuple[str, ...]


def _record(workload: Workload, subject: Subject, steps: int) -> _Recording:
    clock = ModuleClock()
    tracker = CopyMarkingTracker(CPU.type, clock)
    model = subject.model
    with without_collection(), tracker, watching(tracker, clock, model):
        tracker.begin(0, PhaseName.SETUP)
        settle(model, tracker)
        next_batch = batches_on(CPU, workload, subject.batches)
        try:
            _, watch = train_watched(workload, model, CPU.type, next_batch, steps, tracker, clock)
        except MemdoctorError:
            raise
        except Exception as error:
            raise host_out_of_memory(error) or refusal(error) or error from error
    return _Recording(timeline_of(tracker), tuple(watch.without_gradient or ()))


def settle(model: torch.nn.Module, tracker: Tracker) -> None:
    """Give every parameter and buffer a new storage while the tracker looks, as moving to a GPU does."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
    mark_model(model, tracker)


def timeline_of(tracker: Tracker) -> Timeline:
    """What the tracker saw, with nothing between it and the system: every block is a segment of its own.

    Addresses are the C library's to choose, and are not recorded (0). Deaths with no birth between them are in the
    order of birth: autocast drops its copies in that of their addresses, which is another in each run.
    """
    blocks = tuple(
        Block(
            bytes=draft.bytes, category=category_of(draft), module=draft.module, op=draft.op, dtype=draft.dtype,
            shape=draft.shape, allocated_bytes=draft.bytes, address=0,
        )
        for draft in tracker.blocks
    )  # fmt: skip
    events = tuple(event for phase in tracker.phases for event in _in_order(tracker.events[phase.begin : phase.end]))
    segments = tuple(SegmentEvent(index, event.delta_bytes) for index, event in enumerate(events))
    return Timeline(blocks, events, tuple(tracker.phases), segments, tuple(tracker.cache_clears))


def _in_order(events: Sequence[Event]) -> Iterator[Event]:
    deaths: list[Event] = []
    for event in events:
        if event.delta_bytes < 0:
            deaths.append(event)
            continue
        yield from sorted(deaths, key=lambda death: death.block)
        deaths.clear()
        yield event
    yield from sorted(deaths, key=lambda death: death.block)


def _peak_note(resets: bool) -> tuple[str, ...]:
    peak = peak_resident_bytes()
    since = "" if resets else " since it began"
    return () if peak is None else (f"the process held at most {format_bytes(peak)} of resident memory{since}",)
