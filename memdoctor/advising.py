"""From what was probed to advice: levers, findings, and the plan, which asks for more probes."""

from __future__ import annotations

from collections.abc import Sequence

from memdoctor.errors import MemdoctorError
from memdoctor.levers import LeverKind, Pull, effect_of, not_probed, pulls_of
from memdoctor.matrix import apply_to
from memdoctor.measuring import Probing, Subject
from memdoctor.records import Examination, Lever, Workload
from memdoctor.rules import Probe

Pulls = Sequence[tuple[LeverKind, Pull | str]]


def pulls_for(session: Probing, target: Workload) -> Pulls:
    """What each lever would change; ``target`` is the workload as it was probed, with its attention known."""
    return pulls_of(target, session.case.device)


def subjects_of(session: Probing, target: Workload, pulls: Pulls) -> list[Subject]:
    """What is to be probed to know every lever's effect."""
    changes = [pull.change for _, pull in pulls if isinstance(pull, Pull)]
    return [apply_to(target, session.case.device, change) for change in changes]


def levers_of(session: Probing, target: Workload, pulls: Pulls) -> tuple[Lever, ...]:
    """Every lever with its effect, or why it could not be probed."""
    return tuple(_lever(session, target, kind, pull) for kind, pull in pulls)


def _lever(session: Probing, target: Workload, kind: LeverKind, pull: Pull | str) -> Lever:
    if isinstance(pull, str):
        return not_probed(kind, pull)
    workload, device = apply_to(target, session.case.device, pull.change)
    pair = session.alike(target, workload, device)
    if pair is not None:
        return effect_of(kind, pull, *pair)
    failed = session.simulated(workload, device)
    reason = failed.what if isinstance(failed, MemdoctorError) else "the target itself could not be simulated"
    return not_probed(kind, f"{'in use; ' if pull.in_use else ''}{reason}")


def probes_of(session: Probing, target: Workload, pulls: Pulls) -> list[Probe]:
    """The target with each lever pulled, for the rules."""
    found = []
    for _, pull in pulls:
        if isinstance(pull, Pull):
            pair = session.alike(target, *apply_to(target, session.case.device, pull.change))
            if pair is not None:
                found.append((pull.change, pair[1]))
    return found


def prober(session: Probing, subjects: Sequence[Subject]) -> list[Examination | None]:
    """What came of each, simulated; ``None`` for an error."""
    session.simulate_on(subjects)
    results = [session.simulated(*subject) for subject in subjects]
    return [result if isinstance(result, Examination) else None for result in results]
