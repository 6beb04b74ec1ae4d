"""A measured step beside its counters and its simulation, in lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memdoctor.records import Comparison, CounterCheck, Peak
from memdoctor.units import format_bytes

_PRINTED_PERCENT = 0.0005  # less than this is printed as nothing, so it is told in another way


def counter_lines(checks: Sequence[CounterCheck]) -> Iterator[str]:
    """That the timeline and the counters agree, in one line; else one for each figure that is not explained."""
    if checks and not any(check.difference_bytes for check in checks):
        figures = ", ".join(f"{check.name} {format_bytes(check.counted_bytes)}" for check in checks[:2])
        yield f"{figures}: PyTorch's own figures, explained to the byte"
    for check in checks:
        if check.difference_bytes:
            note = f" ({check.note})" if check.note else ""
            yield (
                f"{check.name}: {check.counted_bytes:,} B counted, {check.timeline_bytes:,} B in the timeline, "
                f"{check.difference_bytes:+,} B unexplained{note}"
            )


def comparison_lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The target measured beside simulated, then how near the simulation came in all."""
    for row in comparisons:
        if not row.change:
            yield (
                f"measured {_figures(row.measured)}{_refused(row.measured_fits)}; simulated "
                f"{_figures(row.simulated)}{_refused(row.simulated_fits)}{_error(row)}"
            )
    if len(comparisons) > 1:
        yield _summary(comparisons)


def _figures(peak: Peak) -> str:
    return f"{format_bytes(peak.allocated_bytes)} allocated, {format_bytes(peak.reserved_bytes)} reserved"


def _refused(fits: bool) -> str:
    return "" if fits else ", out of memory"


def _error(row: Comparison) -> str:
    if row.allocated_error_percent is None or row.reserved_error_percent is None:
        return ""
    return f": {_percent(row.allocated_error_percent)} and {_percent(row.reserved_error_percent)}"


def _percent(error: float) -> str:
    if error == 0:
        return "exact"
    return f"{error:+.3f} %" if abs(error) >= _PRINTED_PERCENT else f"{error:+.1e} %"


def _summary(comparisons: Sequence[Comparison]) -> str:
    """Over all steps that were measured and simulated: how many are exact, and the largest errors."""
    allocated = [row.allocated_error_percent for row in comparisons if row.allocated_error_percent is not None]
    reserved = [row.reserved_error_percent for row in comparisons if row.reserved_error_percent is not None]
    parts = [
        f"{name} exact in {errors.count(0)} of {len(errors)}"
        + (f", worst {_percent(max(errors, key=abs))}" if any(errors) else "")
        for name, errors in (("allocated", allocated), ("reserved", reserved))
        if errors
    ]
    parts = parts or ["none ran to its end both ways"]
    unlike = sum(row.measured_fits is not row.simulated_fits for row in comparisons)
    parts += [f"{unlike} of {len(comparisons)} end otherwise than simulated"] if unlike else []
    return f"{len(comparisons)} steps measured and simulated: {'; '.join(parts)}"
