"""A wanted effective batch: whether it fits as it is asked for, and if not, the cheapest ways to train with it."""

from __future__ import annotations

from collections.abc import Callable

from memdoctor.analysis import peak_of
from memdoctor.cases import patcher
from memdoctor.measuring import Probing
from memdoctor.planning import Clock, Forecasts, Search, Writer
from memdoctor.records import Completed, Device, Plan, Wanted, Workload
from memdoctor.scaling import Replayer


def plan_for(
    session: Probing,
    target: Workload,
    replayed: Callable[[Device], Replayer],
    clock: Clock,
) -> Wanted:
    """Probe the target on the session's card; where it does not fit, plan.

    Raises:
        MemdoctorError: the target itself cannot be probed.
    """
    session.simulate([target])
    best = session.best(target)
    fits = isinstance(best.outcome, Completed)
    writer = Writer(best, clock, patcher(session.case, target, best.provenance))
    plan: tuple[Plan, ...] = ()
    smallest = None
    if not fits:
        forecasts = Forecasts(target, session.case.device, session.ask, replayed)
        search = Search(forecasts, clock, best.workload.attention)
        plan = tuple(writer.entry(item) for item in writer.front(search.run()))
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
