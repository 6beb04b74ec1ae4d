"""How long a setting's optimizer step takes beside the target's: what candidates are ordered by."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import inf

from memdoctor.planning.forecast import MICRO_BATCHES, SAMPLES, Basis, Forecasts
from memdoctor.planning.settings import Setting
from memdoctor.records import Examination, PhaseName, PhaseWork, Rates, Ratio
from memdoctor.steptime import estimate, relative, step_time

_COUNTED = tuple(item.name for item in fields(PhaseWork) if item.name not in ("step", "name"))
_RECOMPUTING = 4 / 3  # forward, backward of twice its work, and forward once more


@dataclass(frozen=True, slots=True)
class Clock:
    """Times steps on a card of these rates; where they are not known, micro-steps are counted."""

    rates: Rates | None

    def relative(self, changed: Examination, base: Examination) -> tuple[Ratio, str] | None:
        """The changed step's time over the base's, and whether that was measured; ``None`` where neither is known."""
        one, other = step_time(changed, self.rates), step_time(base, self.rates)
        if one is not None and other is not None and one.kind == other.kind == "measured":
            ratio = one.seconds / other.seconds
            return Ratio(value=ratio, low=ratio, high=ratio), "measured"
        if self.rates is None or not (changed.work and base.work):
            return None
        return relative(changed, base, self.rates), "estimate"

    def expected(self, setting: Setting, forecasts: Forecasts) -> float:
        """Seconds of the setting's step, as forecast; in units of micro-steps where rates are not known."""
        if self.rates is None:
            return setting.accumulation * (_RECOMPUTING if setting.change.get("gradient_checkpointing") else 1)
        basis = forecasts.basis(setting)
        if basis is None or not all(probe.work for probe in (*basis.probes, *basis.optimizers)):
            return inf
        return estimate(_worked(basis, setting), self.rates).seconds


def _worked(basis: Basis, setting: Setting) -> Examination:
    """An examination with the work that the setting's would have; the rest of it is that of its basis."""
    if len(basis.probes) == 1:
        (made,) = basis.probes
    else:
        small, larger = basis.probes
        pairs = zip(small.work, larger.work, strict=True)
        work = tuple(_at(setting.batch, *pair) for pair in pairs)
        workload = replace(larger.workload, gradient_accumulation_steps=setting.accumulation)
        repeats = setting.accumulation - MICRO_BATCHES
        made = replace(larger, workload=workload, work=work, repeated_micro_steps=repeats)
    if not basis.optimizers:
        return made
    _, smaller = basis.optimizers
    instead = {work.step: work for work in smaller.work if work.name is PhaseName.OPTIMIZER}
    swapped = (instead.get(work.step, work) if work.name is PhaseName.OPTIMIZER else work for work in made.work)
    return replace(made, work=tuple(swapped))


def _at(batch: int, small: PhaseWork, larger: PhaseWork) -> PhaseWork:
    """The work of a phase at another batch: each count is a line in it."""
    first, second = SAMPLES
    steps = (batch - first) / (second - first)
    counts = {name: getattr(small, name) for name in _COUNTED}
    grown = {name: count + round((getattr(larger, name) - count) * steps) for name, count in counts.items()}
    return replace(small, **{name: max(count, 0) for name, count in grown.items()})
