"""How long a setting's optimizer step takes beside the target's: what candidates are ordered by."""

from __future__ import annotations

from dataclasses import dataclass

from memdoctor.planning.forecast import Forecasts
from memdoctor.planning.settings import Setting
from memdoctor.records import Examination, Rates


@dataclass(frozen=True, slots=True)
class Ratio:
    """A step's time over the target's, with its band, and whether it is an estimate or measured."""

    ratio: float
    low: float
    high: float
    kind: str


@dataclass(frozen=True, slots=True)
class Clock:
    """Times steps on a card of these rates; where they are not known, micro-steps are counted."""

    rates: Rates | None

    def relative(self, changed: Examination, base: Examination) -> Ratio | None:
        """The changed step's time over the base's; ``None`` where neither is known."""
        return None

    def expected(self, setting: Setting, forecasts: Forecasts) -> float:
        """Seconds of the setting's step, as forecast; in units of micro-steps where rates are not known."""
        return setting.accumulation * (4 / 3 if setting.change.get("gradient_checkpointing") else 1)
