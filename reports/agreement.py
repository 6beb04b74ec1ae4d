"""A measured step beside its counters and its simulation, in lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memdoctor.records import Comparison, CounterCheck
from memdoctor.units import format_bytes

_OF_PYTORCH = 4  # its counters come first; what follows is the card's
_PRINTED_PERCENT = 0.0005  # less than this is printed as nothing, so it is told in another way


def counter_lines(checks: Sequence[CounterCheck]) -> Iterator[str]:
    """That the timeline and PyTorch's counters agree, in one line; and one for each figure that is not explained."""
    if checks and not any(check.difference_bytes for check in checks[:_OF_PYTORCH]):
        allocated, reserved = (format_bytes(check.counted_bytes) for check in checks[:2])
        yield f"{allocated} allocated and {reserved} reserved at most, explained to the byte"
    for check in checks:
        if check.difference_bytes:
            note = f" ({check.note})" if check.note else ""
            yield (
                f"{check.name}: {check.counted_bytes:,} B counted, {check.timeline_bytes:,} B in the timeline, "
                f"{check.difference_bytes:+,} B unexplained{note}"
            )


def comparison_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """What the simulation says of the target, with its error, and how near it came in all, in one line."""
    told = [_beside(row) for row in comparisons if not row.change]
    if len(comparisons) > 1:
        told.append(_summary(comparisons))
    if told:
        yield "; ".join(told)


def _beside(row: Comparison) -> str:
    allocated, reserved = row.simulated.allocated_bytes, row.simulated.reserved_bytes
    measured = "" if row.measured_fits else "measured up to where memory ran out; "
    return (
        f"{measured}simulated {format_bytes(allocated)} allocated{_error(row.allocated_error_percent)}, "
        f"{format_bytes(reserved)} reserved{_error(row.reserved_error_percent)}{_refused(row.simulated_fits)}"
    )


def _refused(fits: bool) -> str:
    return "" if fits else ", out of memory"


def _error(percent: float | None) -> str:
    return "" if percent is None else f" ({_percent(percent)})"


def _percent(error: float) -> str:
    if error == 0:
        return "exact"
    return f"{error:+.3f} %" if abs(error) >= _PRINTED_PERCENT else f"{error:+.1e} %"


def _summary(comparisons: Sequence[Comparison]) -> str:
    """Over all steps that were measured and simulated: how many are exact, and the largest errors."""
    count = len(comparisons)
    errors = {
        "allocated": [row.allocated_error_percent for row in comparisons if row.allocated_error_percent is not None],
        "reserved": [row.reserved_error_percent for row in comparisons if row.reserved_error_percent is not None],
    }
    parts = [f"{name} exact in {found.count(0)}{_worst(found)}" for name, found in errors.items() if found]
    unlike = sum(row.measured_fits is not row.simulated_fits for row in comparisons)
    if not unlike and all(found.count(0) == count for found in errors.values()):
        return f"all {count} steps exact"
    parts = parts or ["none ran to its end"]
    parts += [f"{unlike} end otherwise"] if unlike else []
    return f"of {count} steps {', '.join(parts)}"


def _worst(errors: Sequence[float]) -> str:
    return f" (worst {_percent(max(errors, key=abs))})" if any(errors) else ""
