"""The use cases: the one file that joins probes, analysis and records. Commands and the Python API call it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from memdoctor.advising import Adviser
from memdoctor.agreement import counters_of
from memdoctor.analysis import breakdown_of, modules_of, peak_of, phases_of, ran_out_at, tensors_of, verdict_of
from memdoctor.cases import Case, card_of, check_verifiable, open_case, parse_change
from memdoctor.catalogue import gpus, rates_of
from memdoctor.checklist import decisions_of, trace_of
from memdoctor.claims import claim_probes, claims_of
from memdoctor.errors import MemdoctorError, UsageError
from memdoctor.fitting import (
    USUAL_CARDS,
    Looker,
    able_cards,
    lengths_of,
    over_cards,
    over_lengths,
    plan_for,
    smallest_cards,
)
from memdoctor.matrix import SMALL_BATCHES, apply_change, toggles_of
from memdoctor.measuring import Probing, Progress, probing
from memdoctor.planning import Clock
from memdoctor.probes.pool import TIME_LIMIT, Pool, Request
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.probes.simulated.allocator.replay import replay, replay_on_the_smallest
from memdoctor.records import (
    Backend,
    CardRow,
    Change,
    Comparison,
    Completed,
    Device,
    Diagnosis,
    Event,
    Examination,
    Fit,
    FitCell,
    Prediction,
    Scaling,
    Toggle,
    Verification,
    VerificationPlan,
    Workload,
)
from memdoctor.scaling import Need, Pair, Replayer, aligned, predictions_at, scaling_of
from memdoctor.storage import load_examination

__all__ = [
    "Case",
    "assumed_of",
    "conclude",
    "diagnose",
    "fit",
    "load_examination",
    "open_case",
    "parse_change",
    "probe",
    "replayed_on",
    "verify",
    "with_assumed",
]


@dataclass(frozen=True, slots=True)
class Probes:
    """What came of one workload: each time it was probed, with changes, and beside its simulation."""

    runs: tuple[Examination, ...]
    toggles: tuple[Toggle, ...]
    comparisons: tuple[Comparison, ...]


def probe(
    case: Case,
    changes: Sequence[Change] = (),
    *,
    repeat: int = 1,
    time_limit: float = TIME_LIMIT,
    progress: Progress | None = None,
    use_cache: bool = True,
) -> Probes:
    """Probe the case's workload ``repeat`` times, and once with each of the changes applied.

    The cache on disk is of use where nothing is to be repeated.

    Where this machine's GPU is to be used, what is predicted to fit is measured, and simulated beside; with a case
    that insists on the GPU the workload itself is measured in any case.
    """
    target = case.workload
    changed = [(change, apply_change(target, change)) for change in changes]
    workloads = [target, *(workload for _, workload in changed)]
    with probing(case, time_limit, progress, use_cache=use_cache and repeat == 1) as session:
        _measure_first(session, [target])
        session.simulate(workloads)
        session.measure_what_fits(workloads)
        runs = [session.best(target), *session.examine_again(target, repeat - 1)]
        for workload in workloads:
            session.best(workload)  # or its error
    noted = tuple(_noting(run, session.notes(target)) for run in runs)
    return Probes(noted, _toggles(session, target, changed), session.comparisons([({}, target), *changed]))


def with_assumed(case: Case, assumed: Sequence[str]) -> Case:
    """The case with more that nobody asked for, said first."""
    return replace(case, assumed=(*assumed, *case.assumed))


def verify(case: Case, plan: VerificationPlan, *, time_limit: float = TIME_LIMIT) -> Verification:
    """Run the plan's training loop on the CPU with real numbers, and check its gradient accumulation.

    Raises:
        UsageError: the case is not one of the CPU, or asks for what cannot be verified.
    """
    check_verifiable(case)
    with Pool(Backend.CPU, time_limit=time_limit) as pool:
        found = pool.verify(Request(case.workload, case.device, case.facts, verification=plan))
    chosen = found.workload.attention
    attention = () if case.workload.attention or chosen is None else (f"attention {chosen.value}",)
    return replace(found, assumed=(*case.assumed, *attention))


LINES_FROM = (1, 2, 3)
"""Batches that lines are drawn through: 1 and 2, or where batch 1 is different in kind, which it mostly is, 2 and 3."""


def diagnose(
    case: Case,
    *,
    claims: bool = False,
    time_limit: float = TIME_LIMIT,
    progress: Progress | None = None,
    use_cache: bool = True,
) -> Diagnosis:
    """Probe the target and its matrix, and conclude; with ``claims`` also what beliefs in circulation need.

    Where this machine's GPU is to be used, batch 1 and 2 are measured first, then whatever is predicted to fit, and all
    is simulated beside; with a case that insists on the GPU these and the target are measured in any case. Nothing else
    is tried that may not fit: it would take memory from whoever else is on the card.

    Raises:
        UsageError: the case is one of the CPU, whose memory says nothing about a card.
    """
    if case.backend is Backend.CPU:
        raise UsageError(
            "diagnose does not run on the CPU",
            why="whether training fits a GPU is not told by what the CPU's kernels keep",
            hint="memdoctor probe --backend cpu for the step itself, or diagnose without --backend",
        )
    target = case.workload
    changes = toggles_of(target, case.device.capability, case.facts.max_seq_length)
    changed = [(change, apply_change(target, change)) for change in changes]
    workloads = [target, *(workload for _, workload in changed)]
    also = claim_probes(target, case.facts.max_seq_length) if claims else ()
    with probing(case, time_limit, progress, use_cache=use_cache) as session:
        _measure_first(session, [replace(target, batch_size=batch) for batch in SMALL_BATCHES])
        adviser = Adviser(session, target, Clock(rates_of(case.device.name)), replayed_on, also)
        others = [*workloads, *(replace(target, batch_size=batch) for batch in LINES_FROM)]
        small = [pair[0] for pair in _at_other_lengths(target, changes)]
        others += small
        session.simulate_on([*((workload, session.case.device) for workload in others), *adviser.subjects()])
        _measure_first(session, [target])
        session.measure_what_fits(workloads)
        best = session.best(target)
        scaling = _scaling(session, target)
        lengths = _other_lengths(session, target, changes)
        advice = adviser.advise(changes, scaling)
    diagnosis = conclude(_noting(best, [*session.notes(target), *_refused(session, changed)]))
    return replace(
        diagnosis,
        lengths=lengths,
        levers=advice.levers,
        findings=advice.checked.findings,
        checks_passed=advice.checked.passed,
        not_checked=advice.checked.not_checked,
        plan=advice.plan,
        smallest=advice.smallest,
        checklist=trace_of(advice.evidence, advice.plan),
        decisions=decisions_of(advice.evidence),
        claims=claims_of(advice.evidence) if claims else (),
        probes=session.probes,
        scaling=scaling,
        toggles=_toggles(session, target, changed),
        comparisons=session.comparisons([({}, target), *changed]),
        assumed=assumed_of(case, best),
    )


def fit(
    case: Case,
    *,
    lengths: Sequence[int] = (),
    cards: Sequence[str] | None = None,
    plans: bool = False,
    time_limit: float = TIME_LIMIT,
    progress: Progress | None = None,
    use_cache: bool = True,
) -> Fit:
    """The largest batch for each of the ``lengths`` and for the usual settings; or one workload over ``cards``.

    ``cards`` are names of the catalogue, or ``all``; none of them: a card or two of every size that can hold the static
    state. ``plans``: say of the case's own batch, with its accumulation, whether it fits, and how else it would. All is
    simulated, also where this machine has a GPU.

    Raises:
        UsageError: the case is to be measured, or is one of the CPU.
        InputError: a card that nobody knows, or a length that the model does not take.
    """
    _check_fittable(case)
    if case.tries_gpu:
        simulated = "simulated and not measured on this machine's card"
        case = replace(case, tries_gpu=False, assumed=(*case.assumed, simulated))
    target, device = case.workload, case.device
    columns = lengths_of(target, case.facts.max_seq_length, lengths)
    devices = _cards(case, cards)
    with probing(case, time_limit, progress, use_cache=use_cache) as session:
        looker = Looker(session, replayed_on)
        cells: tuple[FitCell, ...] = ()
        rows: tuple[CardRow, ...] = ()
        if devices is None:
            cells = over_lengths(looker, target, device, columns)
        else:
            able = devices if cards else able_cards(looker, target, devices)
            rows = over_cards(looker, target, able)
        clock = Clock(rates_of(device.name))
        wanted = plan_for(session, target, replayed_on, clock) if plans else None
        probes = session.probes
    assert looker.provenance is not None  # else nothing could be probed, and that is an error
    as_it_is, changed = smallest_cards(rows)
    return Fit(
        workload=target, device=device, provenance=looker.provenance, cells=cells, cards=rows, wanted=wanted,
        smallest_card=as_it_is, smallest_card_changed=changed, probes=probes, assumed=case.assumed,
    )  # fmt: skip


def _cards(case: Case, names: Sequence[str] | None) -> tuple[Device, ...] | None:
    if names is None:
        return None
    chosen = [entry.name for entry in gpus()] if "all" in names else names or USUAL_CARDS
    return tuple(dict.fromkeys(card_of(case, name) for name in chosen))


def _check_fittable(case: Case) -> None:
    if case.backend is not Backend.SIMULATED:
        raise UsageError(
            f"fit does not run with --backend {case.backend.value}",
            why="it probes many batches on both sides of the edge, and all of them are simulated",
            hint="leave --backend out; memdoctor probe --backend gpu -b N measures one batch",
        )


def _measure_first(session: Probing, workloads: Sequence[Workload]) -> None:
    """Measure these, if they are predicted to fit or the case insists."""
    if session.case.backend is Backend.GPU:
        session.measure(workloads)
    elif session.gpu is not None:
        session.simulate(workloads)
        session.measure_what_fits(workloads)


def _noting(examination: Examination, notes: Iterable[str]) -> Examination:
    provenance = examination.provenance
    added = tuple(dict.fromkeys((*provenance.notes, *notes)))
    return replace(examination, provenance=replace(provenance, notes=added))


def _refused(session: Probing, changed: Sequence[tuple[Change, Workload]]) -> Iterator[str]:
    """Changes that the model does not allow."""
    for _, workload in changed:
        result = session.simulated(workload)
        if isinstance(result, MemdoctorError) and workload not in session.measured:
            yield f"not probed: {result.what}"


def conclude(examination: Examination) -> Diagnosis:
    """What one examination says by itself."""
    return Diagnosis(
        workload=examination.workload,
        device=examination.device,
        provenance=examination.provenance,
        peak=peak_of(examination),
        breakdown=breakdown_of(examination),
        verdict=verdict_of(examination),
        ran_out=ran_out_at(examination),
        phases=phases_of(examination),
        modules=modules_of(examination),
        tensors=tensors_of(examination),
        counters=counters_of(examination),
        timeline=examination.timeline,
        repeated_micro_steps=examination.repeated_micro_steps,
    )


def _toggles(session: Probing, target: Workload, changed: Sequence[tuple[Change, Workload]]) -> tuple[Toggle, ...]:
    pairs = [(change, session.alike(target, workload)) for change, workload in changed]
    return tuple(_toggle(change, *pair) for change, pair in pairs if pair is not None)


def _toggle(change: Change, target: Examination, toggled: Examination) -> Toggle:
    peak = peak_of(toggled)
    return Toggle(
        change=change,
        peak=peak,
        breakdown=breakdown_of(toggled),
        fits=isinstance(toggled.outcome, Completed),
        saves_bytes=peak_of(target).reserved_bytes - peak.reserved_bytes,
        mode=toggled.provenance.mode,
    )


def _scaling(session: Probing, workload: Workload) -> Scaling | None:
    """Lines from batch 1 and 2; where batch 1 is different in kind, from 2 and 3. ``None`` where none is simulated."""
    target = session.simulated(workload)
    if not isinstance(target, Examination):
        return None

    def at(batch: int) -> Examination:
        wanted = replace(workload, batch_size=batch)  # as it was asked for: small batches were probed so
        session.simulate([wanted])
        found = session.simulated(wanted)
        if isinstance(found, MemdoctorError):
            raise found
        assert found is not None
        return found

    first = LINES_FROM[0] if aligned(at(LINES_FROM[0]), at(LINES_FROM[1])) else LINES_FROM[1]
    return scaling_of(at(first), at(first + 1), target, replayed_on(target.device))


def _other_lengths(session: Probing, target: Workload, changes: Sequence[Change]) -> tuple[Prediction, ...]:
    """What two probes of each length that was probed beside the target's say of other batches at that length."""
    pairs = [[session.simulated(workload) for workload in pair] for pair in _at_other_lengths(target, changes)]
    known = [Pair(one, two) for one, two in pairs if isinstance(one, Examination) and isinstance(two, Examination)]
    return tuple(item for pair in known for item in predictions_at(pair, replayed_on(pair.next.device)))


def _at_other_lengths(target: Workload, changes: Sequence[Change]) -> Iterator[tuple[Workload, Workload]]:
    """A small batch, and that of the target, at each of the other lengths; none where the target's is as small."""
    small = replace(target, batch_size=LINES_FROM[1])
    if target.batch_size > small.batch_size:
        for change in changes:
            if change.keys() == {"seq_length"}:
                yield apply_change(small, change), apply_change(target, change)


def replayed_on(device: Device) -> Replayer:
    """Replays events on this card with its allocator's settings."""
    return lambda events, clears: _need(events, clears, device)


def _need(events: Sequence[Event], clears: Sequence[int], device: Device) -> Need:
    """Whether these events fit this card, and what they reserve there, or on the smallest that they fit."""
    settings = parse_alloc_conf(device.alloc_conf)
    limit, total = device.allocator_limit_bytes, device.total_bytes
    limited = replay(events, settings, limit, empty_cache_at=clears, device_bytes=total)
    if limited.ran_out is None:
        return Need(True, lambda: limited.peak_reserved)
    return Need(False, lambda: replay_on_the_smallest(events, settings, clears).peak_reserved)


def assumed_of(case: Case, target: Examination) -> tuple[str, ...]:
    """What was assumed, with the attention that the model chose for itself."""
    chosen = target.workload.attention
    return case.assumed if case.workload.attention or chosen is None else (*case.assumed, f"attention {chosen.value}")
