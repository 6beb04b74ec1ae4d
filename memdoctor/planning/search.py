"""The search: for each cost, in the order of the checklist, the settings that fit, each probed directly.

Candidates of one cost are walked from the fastest on. A forecast only passes over what cannot fit; the first that
fits when it is probed is the fastest of its cost, and the walk ends. What changes the task is looked at only where
nothing else fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from memdoctor.analysis import peak_of, phases_of, ran_out_at
from memdoctor.levers.kinds import SGD
from memdoctor.matrix import ALLOC_CONF, apply_to
from memdoctor.planning.clock import Clock
from memdoctor.planning.forecast import Forecasts, Subject
from memdoctor.planning.settings import (
    ORDER,
    Setting,
    expandable,
    free_changes,
    intrusion,
    setting_of,
    splits,
    structures,
    task_changes,
    worst,
)
from memdoctor.records import Attention, Change, Completed, Cost, Examination, PhaseName

WAVE = 2  # candidates that are probed side by side
EVALUATION: tuple[Change, ...] = (
    {}, {"eval_accumulation_steps": 1}, {"eval_accumulation_steps": 1, "eval_batch_size": 1},
)  # fmt: skip
"""What lets evaluation fit, the least first: predictions leave the GPU, then fewer samples at a time."""
_WITH_COST: tuple[Cost, ...] = ("time", "numerics")
MOST_TRIES = 12  # direct probes in one walk; forecasts are exact enough that the first or second fits


@dataclass(frozen=True, slots=True)
class Found:
    """A setting with its own probe."""

    setting: Setting
    examination: Examination

    @property
    def fits(self) -> bool:
        """Whether the probe ran to its end on the card."""
        return isinstance(self.examination.outcome, Completed)

    @property
    def reserved_bytes(self) -> int:
        """The most that was reserved."""
        return peak_of(self.examination).reserved_bytes


@dataclass(slots=True)
class Search:
    """Looks for settings that fit the card of ``forecasts``. ``seen`` is all that was probed directly.

    ``attention`` is the one that the target uses.
    """

    forecasts: Forecasts
    clock: Clock
    attention: Attention | None = None
    seen: dict[Subject, Found] = field(default_factory=dict)
    _free: Change = field(init=False)
    _evaluation: Change = field(init=False)

    def __post_init__(self) -> None:
        """Free changes are those that the model allows and that take no more: fused attention can, as the math kernel.

        What evaluation needs is asked of its own phase.
        """
        target, device = self.forecasts.target, self.forecasts.device
        free = free_changes(replace(target, attention=self.attention))
        changed = [apply_to(target, device, {name: value}) for name, value in free.items()]
        (as_it_is, *probed) = self.forecasts.probe([(target, device), *changed])
        most = inf if as_it_is is None else peak_of(as_it_is).allocated_bytes
        self._free = {
            name: value
            for (name, value), one in zip(free.items(), probed, strict=True)
            if one is not None and peak_of(one).allocated_bytes <= most
        }
        self._evaluation = next(filter(self._lets_evaluation_fit, EVALUATION), EVALUATION[-1])

    def _lets_evaluation_fit(self, change: Change) -> bool:
        """Whether evaluation takes no more than there is; training is looked at later."""
        if not self.forecasts.target.evaluate:
            return True
        (found,) = self.forecasts.probe([apply_to(self.forecasts.target, self.forecasts.device, change)])
        if found is None:
            return False
        stopped = ran_out_at(found)
        if stopped is not None and stopped.phase == PhaseName.EVALUATION:
            return False
        uses = [use.peak_allocated_bytes for use in phases_of(found) if use.name == PhaseName.EVALUATION]
        return max(uses) <= self.forecasts.limit_bytes

    def run(self) -> tuple[Found, ...]:
        """All settings that were found to fit; none where nothing does."""
        if not self._static_state_is_too_large() or self._any_fits({}):
            for cost in ORDER[:-1]:
                self._walk(self._candidates(cost))
        if not self.fitting():
            self._change_task()
        return self.fitting()

    def _static_state_is_too_large(self) -> bool:
        """Whether the optimizer step alone runs out: then only less state or less trained helps, and that is seldom."""
        (probed,) = self.forecasts.probe([(self.forecasts.target, self.forecasts.device)])
        return probed is not None and _optimizer_bytes(probed) > self.forecasts.limit_bytes

    def fitting(self) -> tuple[Found, ...]:
        """What was probed and fits."""
        return tuple(found for found in self.seen.values() if found.fits)

    def smallest(self) -> Found:
        """The setting with the smallest footprint of all that were probed, the target among them."""
        target = self.forecasts.target
        (probed,) = self.forecasts.probe([(target, self.forecasts.device)])
        as_it_is = Setting({}, "none", target.batch_size, target.gradient_accumulation_steps)
        known = [*self.seen.values(), *([Found(as_it_is, probed)] if probed is not None else [])]
        return min(known, key=lambda found: found.reserved_bytes)

    def _candidates(self, cost: Cost, task: Change | None = None) -> list[Setting]:
        """Every setting that costs this at most and not less; with a change of the task, all that include it."""
        target, device = self.forecasts.target, self.forecasts.device
        made = [
            setting_of(target, {**structure, **self._evaluation, **(task or {})}, self._cost(cost_, task), split)
            for structure, cost_ in structures(target, device, cost, self._free)
            for split in splits(target)
        ]
        pages = expandable(device)
        if pages is not None:
            made += [Setting({**s.change, **pages}, s.cost, s.batch, s.accumulation) for s in made]
        return [setting for setting in made if setting.change and (task or setting.cost == cost)]

    def _cost(self, cost: Cost, task: Change | None) -> Cost:
        """Of a structure with what evaluation needs, and with a change of the task."""
        return worst(cost, "time" if self._evaluation else "none", "task" if task else "none")

    def _walk(self, candidates: Sequence[Setting]) -> None:
        """Probe from the most preferred on what may fit, until one does; and one that changes less, where there is one.

        The batch is split only where that may be preferred to what fits whole: no split is faster than the whole batch.
        """
        whole = [setting for setting in candidates if not self._is_split(setting)]
        self.forecasts.prepare(whole)
        best = self._first_that_fits(sorted(whole, key=self._preference))
        limit = inf if best is None else self._preference(best.setting)
        split = [s for s in candidates if self._is_split(s)]
        if best is not None:
            split = [setting for setting in split if self._preference(self._unsplit(setting)) < limit]
        self.forecasts.prepare(split)
        better = self._first_that_fits(sorted((s for s in split if self._preference(s) < limit), key=self._preference))
        first = better or best
        if first is not None:
            known = [*whole, *split]
            simpler = [setting for setting in known if _levers(setting) < _levers(first.setting)]
            self._first_that_fits(sorted(simpler, key=lambda setting: (_levers(setting), self._preference(setting))))

    def _is_split(self, setting: Setting) -> bool:
        return setting.batch != self.forecasts.target.batch_size

    def _unsplit(self, setting: Setting) -> Setting:
        """The setting with the batch of the target."""
        target = self.forecasts.target
        return Setting(_rest(setting), setting.cost, target.batch_size, target.gradient_accumulation_steps)

    def _preference(self, setting: Setting) -> float:
        """Its time, and up to a tenth more for what it changes: the smaller, the better."""
        return self.clock.expected(setting, self.forecasts) * (1 + intrusion(setting.change))

    def _first_that_fits(self, ordered: Sequence[Setting]) -> Found | None:
        tries = 0
        for wave in self._waves(ordered):
            found = self._probe(wave)
            tries += len(wave)
            best = next((item for item in found if item.fits), None)
            if best is not None or tries >= MOST_TRIES:
                return best
        return None

    def _waves(self, ordered: Sequence[Setting]) -> Iterator[list[Setting]]:
        """What may fit, some at a time; nothing that asks for more than what has just failed."""
        wave: list[Setting] = []
        for setting in ordered:
            plain = _with_plain_allocator(setting)
            if plain != setting and plain in wave:  # what it asks for is known when that was probed
                yield wave
                wave = []
            if self._hopeless(setting) or (plain != setting and self._may_fit(plain)):
                continue
            wave.append(setting)
            if len(wave) == WAVE:
                yield wave
                wave = []
        if wave:
            yield wave

    def _hopeless(self, setting: Setting) -> bool:
        known = self.seen.get(self._subject(setting))
        if known is not None:
            return not known.fits
        failed = [other.setting for other in self.seen.values() if not other.fits]
        if any(_rest(other) == _rest(setting) and other.batch <= setting.batch for other in failed):
            return True
        with_sgd = {**setting.change, "optimizer": SGD}
        if any(other.change == with_sgd for other in failed):
            return True
        expected = self.forecasts.expect(setting)
        return expected is None or expected.fits is False

    def _may_fit(self, setting: Setting) -> bool:
        known = self.seen.get(self._subject(setting))
        return known.fits if known is not None else not self._hopeless(setting)

    def _probe(self, settings: Sequence[Setting]) -> list[Found]:
        subjects = [self._subject(setting) for setting in settings]
        results = zip(settings, subjects, self.forecasts.probe(subjects), strict=True)
        found = {subject: Found(setting, result) for setting, subject, result in results if result is not None}
        self.seen |= found
        return list(found.values())

    def _subject(self, setting: Setting) -> Subject:
        return setting.of(self.forecasts.target, self.forecasts.device)

    def _change_task(self) -> None:
        """The least change of the task that lets something fit, of what is trained and of the length."""
        if self._any_fits({}):
            return
        tasks = task_changes(self.forecasts.target)
        lengths = [task for task in tasks if "seq_length" in task]
        next(filter(self._walk_with, (task for task in tasks if task not in lengths)), None)
        if self.fitting() and self._no_length_fits():
            return
        if lengths and self._any_fits(lengths[-1]):  # where the shortest does not, none does
            next(filter(self._walk_with, lengths), None)

    def _no_length_fits(self) -> bool:
        """Whether the optimizer step, which has no length, is too large with all that saves memory."""
        tried = [self.seen.get(self._subject(setting)) for setting in self._smallest_settings({})]
        steps = [_optimizer_bytes(found.examination) for found in tried if found is not None]
        return min(steps, default=0) > self.forecasts.limit_bytes

    def _walk_with(self, task: Change) -> bool:
        """Look at all settings with a change of the task, if its smallest fits; whether that does."""
        fits = self._any_fits(task)
        if fits:
            candidates = [setting for cost in _WITH_COST for setting in self._candidates(cost, task)]
            too_much = [found.setting for found in self.seen.values() if self._asked_too_much(found)]
            self._walk([s for s in candidates if not any(self._asks_for_more(s, other) for other in too_much)])
        return fits

    def _any_fits(self, task: Change) -> bool:
        return any(found.fits for found in self._probe(self._smallest_settings(task)))

    def _smallest_settings(self, task: Change) -> list[Setting]:
        """All that saves memory, with the smallest batch and with the whole, where gradients need not persist.

        Mixed precision can cost, so there is also without.
        """
        target = self.forecasts.target
        ends = dict.fromkeys((splits(target)[-1], splits(target)[0]))
        return [
            setting_of(target, {**change, **self._evaluation, **task}, self._cost(cost, task), split)
            for change, cost in self._smallest_structures()
            for split in ends
            if change or task or split != splits(target)[0]
        ]

    def _smallest_structures(self) -> list[tuple[Change, Cost]]:
        """Those with checkpointing and SGD, where the model and the libraries allow them: no optimizer has less state.

        What they allow is read off the target, whose task is as it is.
        """
        target, device = self.forecasts.target, self.forecasts.device
        made = [part for cost in _WITH_COST for part in structures(target, device, cost, self._free)]
        for wanted in ({"optimizer": SGD}, {"gradient_checkpointing": True}):
            (probed,) = self.forecasts.probe([apply_to(target, device, wanted)])
            with_it = [(change, cost) for change, cost in made if wanted.items() <= change.items()]
            made = with_it if probed is not None and with_it else made
        return made

    def _asked_too_much(self, found: Found) -> bool:
        """Whether it fails however the allocator is set."""
        return peak_of(found.examination).allocated_bytes > self.forecasts.limit_bytes

    def _asks_for_more(self, setting: Setting, other: Setting) -> bool:
        """Whether it is the other with less of what saves memory; whole and split batches say nothing of each other."""
        alike = self._is_split(setting) == self._is_split(other) and setting.batch >= other.batch
        return alike and _includes(other, setting)


def _optimizer_bytes(examination: Examination) -> int:
    """The most that is allocated in an optimizer step."""
    steps = [use.peak_allocated_bytes for use in phases_of(examination) if use.name == PhaseName.OPTIMIZER]
    return max(steps, default=0)


def _includes(smaller: Setting, larger: Setting) -> bool:
    """Whether ``smaller`` is ``larger`` with nothing but checkpointing or SGD more."""
    saves = {"gradient_checkpointing": True, "optimizer": SGD}
    less = {name: value for name, value in _rest(smaller).items() if saves.get(name) != value}
    more = {
        name: value
        for name, value in _rest(_with_plain_allocator(larger)).items()
        if name not in saves or (name not in smaller.change and saves[name] != value)
    }
    return less == more


def _with_plain_allocator(setting: Setting) -> Setting:
    """The setting without a change of the allocator's."""
    change = {name: value for name, value in setting.change.items() if name != ALLOC_CONF}
    return replace(setting, change=change)


def _rest(setting: Setting) -> Change:
    split = ("batch_size", "gradient_accumulation_steps")
    return {name: value for name, value in setting.change.items() if name not in split}


def _levers(setting: Setting) -> int:
    """How many things are changed; batch and accumulation go together."""
    return len(_rest(setting)) + ("batch_size" in setting.change)
