"""The use cases: the one file that joins probes, analysis and records. Commands and the Python API call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from memdoctor.analysis import breakdown_of, modules_of, peak_of, phases_of, ran_out_at, tensors_of, verdict_of
from memdoctor.cases import Case, check_verifiable, open_case, parse_change
from memdoctor.codec import examination_from_json
from memdoctor.errors import InputError, MemdoctorError, UsageError
from memdoctor.matrix import apply_change, toggles_of
from memdoctor.probes.pool import TIME_LIMIT, Pool, Request
from memdoctor.probes.simulated.allocator.conf import parse_alloc_conf
from memdoctor.probes.simulated.allocator.replay import replay, replay_on_the_smallest
from memdoctor.records import (
    Backend,
    Change,
    Completed,
    Device,
    Diagnosis,
    Event,
    Examination,
    Scaling,
    Toggle,
    Verification,
    VerificationPlan,
    Workload,
)
from memdoctor.scaling import Need, aligned, scaling_of
from memdoctor.storage import read_document

__all__ = [
    "Case",
    "assumed_of",
    "conclude",
    "describe",
    "diagnose",
    "load_examination",
    "open_case",
    "parse_change",
    "probe",
    "verify",
    "with_assumed",
]

Progress = Callable[[int, int, str], None]
"""Told how many probes are done, how many there are, and what the last one was."""


def probe(
    case: Case,
    changes: Sequence[Change] = (),
    *,
    repeat: int = 1,
    time_limit: float = TIME_LIMIT,
    progress: Progress | None = None,
) -> tuple[tuple[Examination, ...], tuple[Toggle, ...]]:
    """Probe the case's workload ``repeat`` times, and once with each of the changes applied."""
    workloads = [case.workload] * repeat + [apply_change(case.workload, change) for change in changes]
    with Pool(case.backend, time_limit=time_limit) as pool:
        examinations = _examine(pool, case, workloads, progress)
    runs, toggled = examinations[:repeat], examinations[repeat:]
    return tuple(runs), tuple(_toggle(runs[0], change, found) for change, found in zip(changes, toggled, strict=True))


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


def diagnose(case: Case, *, time_limit: float = TIME_LIMIT, progress: Progress | None = None) -> Diagnosis:
    """Probe the target and its matrix, and conclude.

    Raises:
        UsageError: the case is one of the CPU, whose memory says nothing about a card.
    """
    if case.backend is Backend.CPU:
        raise UsageError(
            "diagnose does not run on the CPU",
            why="whether training fits a GPU is not told by what the CPU's kernels keep",
            hint="memdoctor probe --backend cpu for the step itself, or diagnose without --backend",
        )
    changes = toggles_of(case.workload, case.device.capability, case.facts.max_seq_length)
    with Pool(time_limit=time_limit) as pool:
        targets = [case.workload, *(apply_change(case.workload, change) for change in changes)]
        distinct = list(dict.fromkeys(targets))
        found = dict(zip(distinct, _attempt(pool, case, distinct, progress), strict=True))
        target = found[case.workload]
        if not isinstance(target, Examination):
            raise target
        results = [(change, found[workload]) for change, workload in zip(changes, targets[1:], strict=True)]
        toggled = [(change, result) for change, result in results if isinstance(result, Examination)]
        scaling = _scaling(pool, case, target, [examination for _, examination in toggled])
    diagnosis = conclude(target)
    refused = dict.fromkeys(f"not probed: {result.what}" for _, result in results if isinstance(result, MemdoctorError))
    return replace(
        diagnosis,
        provenance=replace(diagnosis.provenance, notes=(*diagnosis.provenance.notes, *refused)),
        scaling=scaling,
        toggles=tuple(_toggle(target, change, examination) for change, examination in toggled),
        assumed=assumed_of(case, target),
    )


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
    )


def load_examination(path: Path) -> Examination:
    """Read a saved examination.

    Raises:
        InputError: not there, broken, not an examination, or written by a newer memdoctor.
    """
    document = read_document(path)
    if document["kind"] != "examination":
        raise InputError(f"{path} is no examination", why=f"it is a {document['kind']}")
    try:
        return examination_from_json(document)
    except ValueError as error:
        raise InputError(f"{path} is a broken examination", why=str(error)) from error


def _examine(pool: Pool, case: Case, workloads: Sequence[Workload], progress: Progress | None) -> list[Examination]:
    return pool.examine(_requests(case, workloads), _counting(len(workloads), progress))


def _attempt(
    pool: Pool, case: Case, workloads: Sequence[Workload], progress: Progress | None
) -> list[Examination | MemdoctorError]:
    return pool.attempt(_requests(case, workloads), _counting(len(workloads), progress))


def _requests(case: Case, workloads: Sequence[Workload]) -> list[Request]:
    return [Request(workload, case.device, case.facts) for workload in workloads]


def _counting(total: int, progress: Progress | None) -> Callable[[Request], None]:
    done = 0

    def on_done(request: Request) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total, describe(request.workload))

    return on_done


def describe(workload: Workload) -> str:
    """The workload in a few words: ``batch 8 x 512, fp32, checkpointing``."""
    words = [f"batch {workload.batch_size} x {workload.seq_length}", workload.precision.value]
    if workload.gradient_checkpointing:
        words.append("checkpointing")
    if workload.evaluate:
        words.append("evaluation")
    return ", ".join(words)


def _toggle(target: Examination, change: Change, examination: Examination) -> Toggle:
    peak = peak_of(examination)
    return Toggle(
        change=change,
        peak=peak,
        breakdown=breakdown_of(examination),
        fits=isinstance(examination.outcome, Completed),
        saves_bytes=peak_of(target).reserved_bytes - peak.reserved_bytes,
    )


def _scaling(pool: Pool, case: Case, target: Examination, toggled: Sequence[Examination]) -> Scaling:
    """Lines from batch 1 and 2; where batch 1 is different in kind, from 2 and 3."""
    by_workload = {examination.workload: examination for examination in (target, *toggled)}

    def at(batch: int) -> Examination:
        workload = replace(target.workload, batch_size=batch)
        if workload not in by_workload:
            by_workload[workload] = pool.examine([Request(workload, case.device, case.facts)])[0]
        return by_workload[workload]

    first = 1 if aligned(at(1), at(2)) else 2
    return scaling_of(at(first), at(first + 1), target, lambda events, clears: _need(events, clears, case.device))


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
