"""From what was probed to advice: levers, findings, and the plan, which asks for more probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memdoctor.analysis import peak_of
from memdoctor.cases import patcher
from memdoctor.checklist import asks
from memdoctor.errors import MemdoctorError
from memdoctor.levers import LeverKind, Pull, effect_of, not_probed, pulls_of
from memdoctor.matrix import ALLOC_CONF, apply_to
from memdoctor.measuring import Probing, Subject
from memdoctor.planning import Clock, Forecasts, Found, Search, Writer
from memdoctor.planning.cards import smallest_card
from memdoctor.records import (
    Attention,
    Change,
    Completed,
    Device,
    Examination,
    Lever,
    Plan,
    Scaling,
    Smallest,
    Workload,
)
from memdoctor.rules import RULES, Checked, Evidence, Probe, check_all, evidence_of
from memdoctor.scaling import Replayer

Pulls = Sequence[tuple[LeverKind, Pull | str]]


@dataclass(frozen=True, slots=True)
class Advice:
    """What follows from the evidence; ``smallest`` is there where no plan was found."""

    levers: tuple[Lever, ...]
    checked: Checked
    evidence: Evidence
    plan: tuple[Plan, ...] = ()
    smallest: Smallest | None = None


@dataclass(frozen=True, slots=True)
class Adviser:
    """Probes what advice needs, in a session that has probed the target.

    ``replayed`` replays on a card; ``also`` are changes to probe beside those of the levers.
    """

    session: Probing
    target: Workload
    clock: Clock
    replayed: Callable[[Device], Replayer]
    also: Sequence[Change] = ()

    def subjects(self) -> list[Subject]:
        """What to probe for the levers' effect."""
        levers = self._subjects(pulls_of(self.target, self.session.case.device))
        return [*levers, *map(self._subject, self.also)]

    def advise(self, changes: Sequence[Change], scaling: Scaling | None) -> Advice:
        """Levers, findings and the plan; ``changes`` are other changes of the target that were probed."""
        best = self.session.best(self.target)
        pulls = pulls_of(replace(self.target, attention=best.workload.attention), self.session.case.device)
        self.session.simulate_on(self._subjects(pulls))
        levers = tuple(self._lever(kind, pull) for kind, pull in pulls)
        evidence = self._follow(self._evidence(best, pulls, [*changes, *self.also], levers, scaling))
        checked = check_all(RULES, evidence)
        if isinstance(best.outcome, Completed):
            return Advice(levers, checked, evidence)
        search = self._search(best.workload.attention)
        found = search.run()
        if found:
            writer = Writer(best, self.clock, patcher(self.session.case, self.target, best.provenance))
            front = self._measured(writer.front(found))
            return Advice(levers, checked, evidence, tuple(writer.entry(item) for item in front))
        return Advice(levers, checked, evidence, smallest=self._smallest(best, search.smallest()))

    def _measured(self, front: Sequence[Found]) -> list[Found]:
        """What the plan promises, measured where the card of the case is there to measure on.

        Where nothing else was measured the card has no room that is known of: nothing is tried then.
        """
        if not self.session.works:
            return list(front)
        workloads = [self._subject(item.setting.change)[0] for item in front if ALLOC_CONF not in item.setting.change]
        self.session.measure_what_fits(workloads)
        return [self._as_measured(item) for item in front]

    def _as_measured(self, found: Found) -> Found:
        workload, device = self._subject(found.setting.change)
        measured = self.session.measured.get(workload) if device == self.session.case.device else None
        return replace(found, examination=measured) if isinstance(measured, Examination) else found

    def _smallest(self, best: Examination, found: Found) -> Smallest:
        """The smallest footprint, and the cards that would do."""
        workload, device = self._subject(found.setting.change)
        conf = device.alloc_conf
        as_is = peak_of(best).reserved_bytes
        return Smallest(
            change=found.setting.change,
            peak=peak_of(found.examination),
            card=smallest_card(workload, conf, found.reserved_bytes, self.session.ask),
            card_as_is=smallest_card(self.target, self.session.case.device.alloc_conf, as_is, self.session.ask),
        )

    def _search(self, attention: Attention | None) -> Search:
        forecasts = Forecasts(self.target, self.session.case.device, self.session.ask, self.replayed)
        return Search(forecasts, self.clock, attention)

    def _subjects(self, pulls: Pulls) -> list[Subject]:
        return [self._subject(pull.change) for _, pull in pulls if isinstance(pull, Pull)]

    def _subject(self, change: Change) -> Subject:
        return apply_to(self.target, self.session.case.device, change)

    def _lever(self, kind: LeverKind, pull: Pull | str) -> Lever:
        if isinstance(pull, str):
            return not_probed(kind, pull)
        subject = self._subject(pull.change)
        pair = self.session.alike(self.target, *subject)
        if pair is not None:
            target, other = pair
            return replace(effect_of(kind, pull, target, other), **self._time(target, other))
        failed = self.session.simulated(*subject)
        reason = failed.what if isinstance(failed, MemdoctorError) else "the target itself could not be simulated"
        return not_probed(kind, f"{'in use; ' if pull.in_use else ''}{reason}")

    def _time(self, target: Examination, other: Examination) -> dict[str, Any]:
        """The time of the other step, for as many samples as a step of the target has."""
        found = self.clock.relative(other, target)
        if found is None:
            return {}
        (ratio, kind), (ours, theirs) = found, (_samples(target), _samples(other))
        return {"step_time": ratio.value * ours / theirs, "time_kind": kind}

    def _evidence(
        self,
        best: Examination,
        pulls: Pulls,
        changes: Sequence[Change],
        levers: Sequence[Lever],
        scaling: Scaling | None,
    ) -> Evidence:
        made = [*changes, *(pull.change for _, pull in pulls if isinstance(pull, Pull))]
        probes = [self._probed(change) for change in made]
        return evidence_of(
            best,
            self.session.case.facts.config,
            probes=[probe for probe in probes if probe is not None],
            levers=levers,
            scaling=scaling,
        )

    def _follow(self, evidence: Evidence) -> Evidence:
        """With what the checklist asks, and with what it asks after that."""
        for _ in range(2):
            asked = asks(evidence)
            self.session.simulate_on([self._subject(change) for change in asked])
            found = tuple(probe for change in asked if (probe := self._probed(change)) is not None)
            evidence = replace(evidence, probes=(*evidence.probes, *found))
        return evidence

    def _probed(self, change: Change) -> Probe | None:
        pair = self.session.alike(self.target, *self._subject(change))
        return None if pair is None else (change, pair[1])


def _samples(examination: Examination) -> int:
    """Samples in one optimizer step."""
    return examination.workload.batch_size * examination.workload.gradient_accumulation_steps
