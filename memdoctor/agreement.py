"""Whether figures that should be the same are: a measured step with its counters, and with its simulation. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from memdoctor.analysis import peak_of
from memdoctor.records import Change, Comparison, Completed, CounterCheck, Examination

RESET = "PyTorch's peak was reset while the step ran, by something that the model or its factory calls"

UNLISTED = "NVML lists no process that holds it"


def compare(change: Change, measured: Examination, simulated: Examination) -> Comparison:
    """The peaks of both, and the error of the simulation where both ran to their end."""
    theirs, ours = peak_of(measured), peak_of(simulated)
    fits = isinstance(measured.outcome, Completed), isinstance(simulated.outcome, Completed)
    return Comparison(
        change=change,
        measured=theirs,
        simulated=ours,
        measured_fits=fits[0],
        simulated_fits=fits[1],
        allocated_error_percent=_error(theirs.allocated_bytes, ours.allocated_bytes) if all(fits) else None,
        reserved_error_percent=_error(theirs.reserved_bytes, ours.reserved_bytes) if all(fits) else None,
    )


def _error(measured: int, simulated: int) -> float:
    """Percent of what was measured, to a hundred-millionth: a byte in a gigabyte is seen."""
    return round(100 * (simulated - measured) / measured, 8)


def counters_of(examination: Examination) -> tuple[CounterCheck, ...]:
    """The timeline beside what PyTorch and NVML counted; empty where nothing was measured on a GPU.

    A step that ran out of memory ends with a request that nobody counted, so its peaks are those before it.
    """
    if examination.counters is None:
        return ()
    return tuple(_checks(examination))


def _checks(examination: Examination) -> Iterator[CounterCheck]:
    counted, timeline, device = examination.counters, examination.timeline, examination.device
    assert counted is not None
    completed = isinstance(examination.outcome, Completed)
    end = len(timeline.events) if completed else len(timeline.events) - 1
    allocated, reserved = timeline.memory_allocated()[:end], timeline.reserved()[:end]
    if not allocated:
        return
    yield _peak("max_memory_allocated", counted.max_memory_allocated_bytes, max(allocated))
    yield _peak("max_memory_reserved", counted.max_memory_reserved_bytes, max(reserved))
    if not completed:
        return
    yield _check("memory_allocated at the end", counted.memory_allocated_bytes, allocated[-1])
    yield _check("memory_reserved at the end", counted.memory_reserved_bytes, reserved[-1])
    if counted.used_bytes is not None and counted.listed_bytes is not None:
        explained = reserved[-1] + device.context_bytes + counted.listed_bytes
        yield _check("used on the card", counted.used_bytes, explained, UNLISTED)


def _peak(name: str, counted: int, timeline: int) -> CounterCheck:
    return _check(name, counted, timeline, RESET if counted < timeline else "")


def _check(name: str, counted: int, timeline: int, note: str = "") -> CounterCheck:
    difference = counted - timeline
    return CounterCheck(
        name=name, counted_bytes=counted, timeline_bytes=timeline, difference_bytes=difference,
        note=note if difference else "",
    )  # fmt: skip
