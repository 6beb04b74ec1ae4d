"""What a lever does here, and why it does nothing where it does nothing: from the target's probe and its own."""

from __future__ import annotations

from memdoctor.analysis import breakdown_of, peak_of, phases_of
from memdoctor.levers.kinds import LeverKind, Pull
from memdoctor.records import Breakdown, Category, Completed, Examination, Lever, Peak
from memdoctor.units import MIB, format_bytes

NOTHING = 1 * MIB
"""Less than this is no effect: a segment of the small pool is two of it."""


def not_probed(kind: LeverKind, reason: str) -> Lever:
    """The lever, where there is nothing to probe or it could not be."""
    return Lever(name=kind.name, change={}, status="not probed", cost=kind.cost, sentence=reason)


def effect_of(kind: LeverKind, pull: Pull, target: Examination, other: Examination) -> Lever:
    """The lever's effect: ``other`` is the target with the pull's change, probed in the same way."""
    without, with_ = (other, target) if pull.in_use else (target, other)
    before, after = _phase_peaks(without), _phase_peaks(with_)
    phase = max(before, key=lambda name: before[name] - after.get(name, 0))
    peak = peak_of(other)
    saves = peak_of(without).reserved_bytes - peak_of(with_).reserved_bytes
    return Lever(
        name=kind.name,
        change=pull.change,
        status="in use" if pull.in_use else "probed",
        cost=kind.cost,
        sentence=("in use: " if pull.in_use else "") + _sentence(kind, without, with_, phase),
        peak=peak,
        fits=isinstance(other.outcome, Completed),
        saves_bytes=saves,
        phase=phase,
        phase_before_bytes=before[phase],
        phase_after_bytes=after.get(phase, 0),
        mode=other.provenance.mode,
    )


def _phase_peaks(examination: Examination) -> dict[str, int]:
    """The most that is allocated in each phase, over all steps."""
    peaks: dict[str, int] = {}
    for use in phases_of(examination):
        peaks[use.name] = max(peaks.get(use.name, 0), use.peak_allocated_bytes)
    return peaks


def _sentence(kind: LeverKind, without: Examination, with_: Examination, phase: str) -> str:
    """One sentence on the way from ``without`` to ``with_``."""
    peak, then = peak_of(without), peak_of(with_)
    saved = peak.reserved_bytes - then.reserved_bytes
    in_use = peak.allocated_bytes - then.allocated_bytes
    lowered = _phase_peaks(without)[phase] - _phase_peaks(with_).get(phase, 0)
    if abs(saved) < NOTHING and abs(in_use) < NOTHING:
        return _why_nothing(kind, without, with_, phase, lowered)
    if saved < 0:
        return f"costs {format_bytes(-saved)}: {_moved(without, with_)}"
    if saved < NOTHING and in_use < 0:
        effect = f"saves nothing: what is reserved stays at {format_bytes(then.reserved_bytes)}, and more is allocated"
        return f"{effect}, {format_bytes(-in_use)}: {_moved(without, with_)}"
    if saved < NOTHING:
        effect = f"saves nothing of what is reserved, {format_bytes(peak.reserved_bytes)}, and of what is allocated"
        return f"{effect} {format_bytes(in_use)}: {_moved(without, with_)}"
    return f"saves {format_bytes(saved)}: {_moved(without, with_)}{_elsewhere(peak, then)}"


def _why_nothing(kind: LeverKind, without: Examination, with_: Examination, phase: str, lowered: int) -> str:
    peak = peak_of(without)
    if lowered < NOTHING:
        reserved = format_bytes(peak_of(with_).reserved_bytes)
        return f"saves nothing: the reserved peak stays at {reserved}; it acts on {kind.acts}"
    before, after = _phase_peaks(without)[phase], _phase_peaks(with_).get(phase, 0)
    return (
        f"saves nothing: the peak is in {peak.phase}, {format_bytes(peak.allocated_bytes)}; it lowers {phase} from "
        f"{format_bytes(before)} to {format_bytes(after)}, which is not the peak"
    )


def _moved(without: Examination, with_: Examination) -> str:
    """What changed between the two peaks, largest first: ``activations -1.95 GiB, temporaries +12.00 MiB``."""
    before, after = breakdown_of(without), breakdown_of(with_)
    changes = {name: _part(after, name) - _part(before, name) for name in (*Category, "allocator_overhead")}
    largest = sorted(changes.items(), key=lambda item: -abs(item[1]))[:2]
    words = [f"{name.replace('_', ' ')} {_less(-change)}" for name, change in largest if abs(change) >= NOTHING]
    return ", ".join(words) or "the same parts, a little of each"


def _elsewhere(peak: Peak, then: Peak) -> str:
    return f"; the peak is then in {then.phase}, not in {peak.phase}" if then.phase != peak.phase else ""


def _part(parts: Breakdown, name: str) -> int:
    value = getattr(parts, name)
    assert isinstance(value, int)
    return value


def _less(saved: int) -> str:
    return f"{'-' if saved >= 0 else '+'}{format_bytes(abs(saved))}"
