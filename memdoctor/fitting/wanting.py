"""A wanted effective batch: whether it fits as it is asked for, and if not, the cheapest ways to train with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from memdoctor.analysis import peak_of
from memdoctor.measuring import Probing, Subject
from memdoctor.planning import Clock, Forecasts, Search, Writer
from memdoctor.records import Change, Completed, Device, Examination, Plan, Wanted, Workload
from memdoctor.scaling import Replayer


def plan_for(
    session: Probing,
    target: Workload,
    replayed: Callable[[Device], Replayer],
    clock: Clock,
    patch: Callable[[Change], Mapping[str, str]],
) -> Wanted:
    """Probe the target on the session's card; where it does not fit, plan.

    Raises:
        MemdoctorError: the target itself cannot be probed.
    """
    session.simulate([target])
    best = session.best(target)
    fits = isinstance(best.outcome, Completed)
    writer = Writer(best, clock, patch)
    plan: tuple[Plan, ...] = ()
    smallest = None
    if not fits:
        forecasts = Forecasts(target, session.case.device, lambda subjects: _probe(session, subjects), replayed)
        search = Search(forecasts, clock, best.workload.attention)
        plan = writer.entries(search.run())
        smallest = writer.entry(search.smallest()) if not plan and search.seen else None
    return Wanted(
        effective_batch=target.batch_size * target.gradient_accumulation_steps,
        batch_size=target.batch_size,
        gradient_accumulation_steps=target.gradient_accumulation_steps,
        seq_length=target.seq_length,
        fits=fits,
        peak=peak_of(best),
        plan=plan,
        smallest=smallest,
    )


def _probe(session: Probing, subjects: Sequence[Subject]) -> list[Examination | None]:
    """What came of each, simulated; ``None`` for an error."""
    session.simulate_on(subjects)
    results = [session.simulated(*subject) for subject in subjects]
    return [result if isinstance(result, Examination) else None for result in results]
