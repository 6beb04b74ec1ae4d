"""Looking at probes: the target with a change, whether it was probed as a change or is the target itself."""

from __future__ import annotations

from collections.abc import Iterable

from memdoctor.analysis import breakdown_of, peak_of
from memdoctor.matrix import ALLOC_CONF
from memdoctor.planning.settings import MOST_MICRO_BATCHES
from memdoctor.records import Change, Completed, Examination
from memdoctor.rules import Evidence
from memdoctor.rules.evidence import STATIC
from memdoctor.units import format_bytes


def changing(evidence: Evidence, change: Change) -> Change:
    """The change without what the target has already."""
    workload, conf = evidence.workload, evidence.device.alloc_conf
    return {
        name: value
        for name, value in change.items()
        if (conf if name == ALLOC_CONF else _plain(getattr(workload, name))) != _plain(value)
    }


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, (list, tuple)) else value


def probed(evidence: Evidence, change: Change) -> Examination | None:
    """The target with this change: itself, where it changes nothing; ``None`` where that was not probed."""
    wanted = changing(evidence, change)
    if not wanted:
        return evidence.examination
    return next((found for made, found in evidence.probes if changing(evidence, made) == wanted), None)


def made(evidence: Evidence, *changes: Change) -> tuple[Change, ...]:
    """Those of the changes that were probed and are not the target itself, each once and as far as it changes it."""
    asked = [changing(evidence, change) for change in changes]
    there = [change for change in asked if change and probed(evidence, change) is not None]
    return tuple(change for number, change in enumerate(there) if change not in there[:number])


def runs(examination: Examination) -> bool:
    """Whether it fits its card."""
    return isinstance(examination.outcome, Completed)


def reserved(examination: Examination) -> int:
    """Its peak, as reserved from the driver."""
    return peak_of(examination).reserved_bytes


def takes(examination: Examination) -> str:
    """``2.12 GiB reserved, fits``, ``20.12 GiB reserved, does not fit``."""
    return f"{format_bytes(reserved(examination))} reserved, {'fits' if runs(examination) else 'does not fit'}"


def static_at_peak(examination: Examination) -> int:
    """Parameters, gradients and optimizer state at the peak."""
    parts = breakdown_of(examination)
    return sum(getattr(parts, category.value) for category in STATIC)


def moved(before: int, after: int) -> str:
    """``saves 1.00 GiB``, ``costs 2.00 MiB``, ``changes nothing``."""
    if before == after:
        return "changes nothing"
    return f"{'saves' if after < before else 'costs'} {format_bytes(abs(before - after))}"


def told(sentences: Iterable[str]) -> str:
    """Those that say something, one after another, each with its full stop."""
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def too_many(wanted: int, divisor: int, most: int) -> str:
    """Of an effective batch with few divisors, how near one comes that needs fewer micro-batches; empty for others.

    ``divisor`` is its largest part that fits, ``most`` the largest batch that is predicted to.
    """
    steps = -(-wanted // most)
    if wanted // divisor <= MOST_MICRO_BATCHES or steps > MOST_MICRO_BATCHES:
        return ""
    part = wanted // steps
    return (
        f"{divisor} is the largest that fits and divides {wanted}: {wanted // divisor} micro-batches, and the plan "
        f"tries {MOST_MICRO_BATCHES} at most; {most} a device is predicted to fit, so {part} x {steps} = "
        f"{part * steps} would"
    )
