"""From what was probed to advice: levers, findings, and the plan, which asks for more probes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from memdoctor.checklist import asks
from memdoctor.errors import MemdoctorError
from memdoctor.levers import LeverKind, Pull, effect_of, not_probed, pulls_of
from memdoctor.matrix import apply_to
from memdoctor.measuring import Probing, Subject
from memdoctor.planning import Clock, Forecasts, Found, Search, Writer
from memdoctor.records import Attention, Change, Completed, Device, Examination, Lever, Plan, Scaling, Workload
from memdoctor.rules import RULES, Checked, Evidence, Probe, check_all, evidence_of
from memdoctor.scaling import Replayer

Pulls = Sequence[tuple[LeverKind, Pull | str]]


@dataclass(frozen=True, slots=True)
class Advice:
    """What follows from the evidence; ``smallest`` is there where no plan was found."""

    levers: tuple[Lever, ...]
    checked: Checked
    plan: tuple[Plan, ...]
    smallest: Found | None
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Adviser:
    """Probes what advice needs, in a session that has probed the target.

    ``replayed`` replays on a card; ``patch`` writes a change in the user's languages.
    ``also`` are changes to probe beside those of the levers.
    """

    session: Probing
    target: Workload
    clock: Clock
    replayed: Callable[[Device], Replayer]
    patch: Callable[[Change], Mapping[str, str]]
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
            return Advice(levers, checked, (), None, evidence)
        search = self._search(best.workload.attention)
        found = search.run()
        writer = Writer(best, self.clock, self.patch)
        smallest = None if found or not search.seen else search.smallest()
        return Advice(levers, checked, writer.entries(found), smallest, evidence)

    def _search(self, attention: Attention | None) -> Search:
        forecasts = Forecasts(self.target, self.session.case.device, self._probe, self.replayed)
        return Search(forecasts, self.clock, attention)

    def _probe(self, subjects: Sequence[Subject]) -> list[Examination | None]:
        """What came of each, simulated; ``None`` for an error."""
        self.session.simulate_on(subjects)
        results = [self.session.simulated(*subject) for subject in subjects]
        return [result if isinstance(result, Examination) else None for result in results]

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
            return effect_of(kind, pull, *pair)
        failed = self.session.simulated(*subject)
        reason = failed.what if isinstance(failed, MemdoctorError) else "the target itself could not be simulated"
        return not_probed(kind, f"{'in use; ' if pull.in_use else ''}{reason}")

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
