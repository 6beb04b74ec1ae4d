"""From settings that were probed to the entries of a plan: ranked, none worse than another in every respect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from memdoctor.analysis import breakdown_of, peak_of
from memdoctor.levers.wording import in_words
from memdoctor.planning.clock import Clock
from memdoctor.planning.search import Found
from memdoctor.planning.settings import ORDER, intrusion, task_changes
from memdoctor.records import Change, Examination, Plan, Ratio, Workload
from memdoctor.units import format_bytes

MOST_ENTRIES = 6
HARDLY_SLOWER, HARDLY_LARGER = 1.02, 1.05
"""Time and peak by which an entry may be worse than one that changes or costs more, and is told in its place."""

Patcher = Callable[[Change], Mapping[str, str]]
"""The lines to paste for a change, by language."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes entries of the plan of one target."""

    target: Examination
    clock: Clock
    patch: Patcher

    def front(self, found: Sequence[Found]) -> tuple[Found, ...]:
        """The settings on the front of peak, time, cost and number of changes, in the order of the checklist.

        What changes the task most comes last, however fast it is: a shorter text always is. Of one structure, only the
        split of the batch that is ranked first.
        """
        target = self.target.workload
        ranked = sorted(((item, self.entry(item)) for item in found), key=lambda pair: _rank(pair[1], target))
        best: dict[tuple[object, ...], tuple[Found, Plan]] = {}
        for item, entry in ranked:
            best.setdefault(_structure(entry.change), (item, entry))
        made = list(best.values())
        front = [item for item, entry in made if not any(_dominates(other, entry, target) for _, other in made)]
        return tuple(front[:MOST_ENTRIES])

    def entry(self, found: Found) -> Plan:
        """One setting with the peak that it was probed to have."""
        setting, peak = found.setting, peak_of(found.examination)
        saves = peak_of(self.target).reserved_bytes - peak.reserved_bytes
        time = self.clock.relative(found.examination, self.target)
        ratio, kind = time if time is not None else (None, "")
        return Plan(
            change=setting.change,
            why=self._why(found, saves),
            peak=peak,
            fits=found.fits,
            saves_bytes=saves,
            time_cost="not estimated" if ratio is None else _time_in_words(ratio, kind),
            numerics="same" if ORDER.index(setting.cost) < ORDER.index("numerics") else "changed",
            patch=self.patch(setting.change),
            cost=setting.cost,
            step_time=ratio.value if ratio else None,
            step_time_low=ratio.low if ratio else None,
            step_time_high=ratio.high if ratio else None,
            time_kind=kind,
            mode=found.examination.provenance.mode,
        )

    def _why(self, found: Found, saves: int) -> str:
        free, error = breakdown_of(found.examination).free, found.examination.device.context_error_bytes
        effect = f"saves {format_bytes(saves)}" if saves >= 0 else f"costs {format_bytes(-saves)}"
        room = f"{format_bytes(abs(free))} {'to spare' if free >= 0 else 'too much'}"
        close = ", which is less than the context is known to" if 0 <= free < error else ""
        more = "gradient_accumulation_steps" in found.setting.change
        check = "; memdoctor probe --verify-accumulation checks the accumulated gradients" if more else ""
        return f"{in_words(found.setting.change)}: {effect}, {room}{close}; the peak is in {_phase(found)}{check}"


def _structure(change: Change) -> tuple[object, ...]:
    """What is changed besides the split of the batch."""
    split = ("batch_size", "gradient_accumulation_steps")
    return tuple(sorted((name, value) for name, value in change.items() if name not in split))


def _phase(found: Found) -> str:
    return peak_of(found.examination).phase


def _time_in_words(ratio: Ratio, kind: str) -> str:
    band = "" if kind == "measured" else f", {ratio.low:.2f} to {ratio.high:.2f}"
    return f"{ratio.value:.2f} x the step time ({kind}{band})"


def _rank(entry: Plan, target: Workload) -> tuple[int, int, float]:
    cost, task = _price(entry, target)
    return cost, task, (entry.step_time or 1.0) * (1 + intrusion(entry.change))


def _dominates(other: Plan, entry: Plan, target: Workload) -> bool:
    """No worse in anything, and better in something; or simpler, and hardly worse."""
    ours, theirs = (_price(plan, target) + _measures(plan) for plan in (entry, other))
    if all(b <= a for a, b in zip(ours, theirs, strict=True)):
        return ours != theirs
    simpler = all(b <= a for a, b in zip(ours[:3], theirs[:3], strict=True)) and theirs[:3] != ours[:3]
    return simpler and theirs[3] <= HARDLY_SLOWER * ours[3] and theirs[4] <= HARDLY_LARGER * ours[4]


def _price(entry: Plan, target: Workload) -> tuple[int, int]:
    """What it costs, and how much it changes the task: which of the changes of the task it has, the least first."""
    kinds = enumerate(task_changes(target), start=1)
    task = next((place for place, change in kinds if change.items() <= entry.change.items()), 0)
    return ORDER.index(entry.cost), task


def _measures(entry: Plan) -> tuple[float, float, int]:
    return intrusion(entry.change), entry.step_time or 1.0, entry.peak.reserved_bytes
