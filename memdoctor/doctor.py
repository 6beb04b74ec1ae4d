"""The use cases: the one file that joins probes, analysis and records. Commands and the Python API call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memdoctor.analysis import breakdown_of, modules_of, peak_of, phases_of, ran_out_at, tensors_of, verdict_of
from memdoctor.catalogue import GpuEntry, find_gpu, near_gpus
from memdoctor.codec import examination_from_json, from_json, to_json
from memdoctor.errors import InputError, MeasureError, UsageError
from memdoctor.matrix import apply_change, toggles_of
from memdoctor.probes.nvml import NoGpu, SeenGpu, see_gpus
from memdoctor.probes.pool import TIME_LIMIT, Pool, Request
from memdoctor.probes.resolve import ModelFacts, resolve_model
from memdoctor.probes.simulated.allocator.replay import replay
from memdoctor.records import (
    Change,
    Completed,
    Device,
    Diagnosis,
    Event,
    Examination,
    Scaling,
    Toggle,
    Workload,
)
from memdoctor.scaling import Need, aligned, scaling_of
from memdoctor.storage import read_document
from memdoctor.units import MIB, format_bytes, parse_bytes

REFERENCE_GPU = "T4"
DEFAULT_SEQ_LENGTH = 512
# A card that is not in the catalogue: the middle of the readings that are, and wide enough for nearly all of them.
UNKNOWN_CONTEXT_BYTES = 450 * MIB
UNKNOWN_CONTEXT_ERROR_BYTES = 350 * MIB

Progress = Callable[[int, int, str], None]
"""Told how many probes are done, how many there are, and what the last one was."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a user asked for, filled in: ``assumed`` names what they did not say."""

    workload: Workload
    device: Device
    facts: ModelFacts
    assumed: tuple[str, ...]


def open_case(
    model: str,
    *,
    gpu: str | None = None,
    memory: str | None = None,
    backend: str = "auto",
    offline: bool = False,
    **settings: Any,
) -> Case:
    """Find the model and the GPU, and fill in what was not said. ``settings`` are fields of Workload or ``None``.

    Raises:
        InputError: an unknown model or GPU, or a sequence longer than the model takes.
        UsageError: a setting that is out of range.
        MeasureError: a backend that cannot be used here.
    """
    if backend not in ("auto", "simulated"):
        raise MeasureError(
            f"--backend {backend} is not available",
            why="this version of memdoctor simulates; it does not measure yet",
            hint="--backend simulated",
        )
    device, assumed_gpu = _device(gpu, memory)
    facts = resolve_model(model, offline=offline)
    workload, assumed = _workload(facts, settings)
    return Case(workload, device, facts, (*assumed, *assumed_gpu))


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
    with Pool(time_limit=time_limit) as pool:
        examinations = _examine(pool, case, workloads, progress)
    runs, toggled = examinations[:repeat], examinations[repeat:]
    return tuple(runs), tuple(_toggle(runs[0], change, found) for change, found in zip(changes, toggled, strict=True))


def parse_change(case: Case, text: str) -> Change:
    """A change written as ``key=value``, e.g. ``precision=fp16``: a field of the workload and its new value.

    Raises:
        UsageError: no such field, or a value that it cannot have.
    """
    name, _, value = text.partition("=")
    key = name.strip().replace("-", "_")
    fixed = ("model", "strategy", "world_size", "freeze")
    settings = {name: value for name, value in to_json(case.workload).items() if name not in fixed}
    if key not in settings:
        raise UsageError(f"--toggle {text}: there is no setting {name!r}", hint=f"one of {', '.join(settings)}")
    try:
        changed = to_json(from_json(Workload, {**to_json(case.workload), key: value.strip()}))
    except ValueError as error:
        raise UsageError(f"--toggle {text}: {value!r} is no {key}", why=str(error)) from error
    _check_length(case.facts, changed["seq_length"])
    return {key: changed[key]}


def diagnose(case: Case, *, time_limit: float = TIME_LIMIT, progress: Progress | None = None) -> Diagnosis:
    """Probe the target and its matrix, and conclude."""
    changes = toggles_of(case.workload, case.device.capability, case.facts.max_seq_length)
    with Pool(time_limit=time_limit) as pool:
        targets = [case.workload, *(apply_change(case.workload, change) for change in changes)]
        distinct = list(dict.fromkeys(targets))
        found = dict(zip(distinct, _examine(pool, case, distinct, progress), strict=True))
        target, *toggled = (found[workload] for workload in targets)
        scaling = _scaling(pool, case, target, toggled)
    toggles = [_toggle(target, change, examination) for change, examination in zip(changes, toggled, strict=True)]
    return replace(conclude(target), scaling=scaling, toggles=tuple(toggles), assumed=_assumed(case, target))


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
    done = 0

    def on_done(request: Request, _: Examination) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(workloads), describe(request.workload))

    return pool.examine([Request(workload, case.device, case.facts) for workload in workloads], on_done)


def describe(workload: Workload) -> str:
    """The workload in a few words: ``batch 8 x 512, fp32, checkpointing``."""
    words = [f"batch {workload.batch_size} x {workload.seq_length}", workload.precision.value]
    if workload.gradient_checkpointing:
        words.append("checkpointing")
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
    return scaling_of(at(first), at(first + 1), target, lambda events: _need(events, case.device))


def _need(events: Sequence[Event], device: Device) -> Need:
    """What the allocator reserves for these events on this card; where they do not fit, without a limit."""
    limited = replay(events, capacity_bytes=device.allocator_limit_bytes)
    if limited.ran_out is None:
        return Need(limited.peak_reserved, fits=True)
    return Need(replay(events).peak_reserved, fits=False)


def _workload(facts: ModelFacts, settings: Mapping[str, Any]) -> tuple[Workload, tuple[str, ...]]:
    said = {name: value for name, value in settings.items() if value is not None}
    longest = facts.max_seq_length
    said_length = said.setdefault("seq_length", min(DEFAULT_SEQ_LENGTH, longest or DEFAULT_SEQ_LENGTH))
    _check_length(facts, said_length)
    if said.get("strategy", "single") != "single" or said.get("world_size", 1) != 1:
        raise InputError(
            "several GPUs cannot be probed yet",
            why="only --strategy single with --world-size 1 is simulated",
            hint="probe one GPU; with DDP each GPU takes at least that much",
        )
    try:
        workload = Workload(model=facts.name, **said)
    except ValueError as error:
        raise UsageError(str(error)) from error
    assumed = [
        f"{name} {getattr(workload, name)}"
        for name in ("batch_size", "seq_length", "precision", "optimizer", "max_grad_norm")
        if settings.get(name) is None
    ]
    if settings.get("padded") is None:
        assumed.append("no padding in the batch")
    return workload, tuple(assumed)


def _check_length(facts: ModelFacts, length: int) -> None:
    longest = facts.max_seq_length
    if longest is not None and length > longest:
        raise InputError(
            f"a sequence of {length} tokens is longer than {facts.name} takes",
            why=f"its positions end at {longest}",
            hint=f"--seq-length {longest} or less, or a model for longer texts",
        )


def _assumed(case: Case, target: Examination) -> tuple[str, ...]:
    """What was assumed, with the attention that the model chose for itself."""
    chosen = target.workload.attention
    return case.assumed if case.workload.attention or chosen is None else (*case.assumed, f"attention {chosen.value}")


def _device(gpu: str | None, memory: str | None) -> tuple[Device, tuple[str, ...]]:
    """The card asked for, else the first of this machine, else the reference card; and what was assumed."""
    device, assumed = (_catalogued(gpu), ()) if gpu is not None else _own_or_reference()
    if memory is None:
        return device, assumed
    total = parse_bytes(memory)
    if total <= device.context_bytes:
        raise UsageError(
            f"--memory {memory} is too little", why=f"the CUDA context alone takes {format_bytes(device.context_bytes)}"
        )
    return replace(device, total_bytes=total, source=f"--memory {memory}"), assumed


def _catalogued(gpu: str) -> Device:
    entry = find_gpu(gpu)
    if entry is None:
        near = near_gpus(gpu)
        raise InputError(
            f"unknown GPU {gpu!r}",
            hint=f"{' or '.join(near)}; memdoctor gpus lists the catalogue" if near else "memdoctor gpus",
        )
    return _device_of(entry)


def _device_of(entry: GpuEntry) -> Device:
    return Device(
        name=entry.name, total_bytes=entry.total_bytes, compute_capability=entry.compute_capability,
        context_bytes=entry.context_bytes, context_error_bytes=entry.context_error_bytes,
        context_source=entry.context_source, source=f"catalogue: {entry.total_source}",
    )  # fmt: skip


def _own_or_reference() -> tuple[Device, tuple[str, ...]]:
    seen = see_gpus()
    if isinstance(seen, NoGpu):
        return _catalogued(REFERENCE_GPU), (f"GPU {REFERENCE_GPU}, the reference card, since no GPU is seen here",)
    own = _device_of_seen(seen[0])
    return own, (f"GPU {own.name}, the first of this machine",)


def _device_of_seen(seen: SeenGpu) -> Device:
    entry = find_gpu(seen.name)
    context = (
        (entry.context_bytes, entry.context_error_bytes, entry.context_source)
        if entry is not None
        else (UNKNOWN_CONTEXT_BYTES, UNKNOWN_CONTEXT_ERROR_BYTES, "estimate: no reading of this card is known")
    )
    return Device(
        name=entry.name if entry is not None else seen.name, total_bytes=seen.total_bytes,
        compute_capability=seen.compute_capability, context_bytes=context[0], context_error_bytes=context[1],
        context_source=context[2], source="NVML: total less what the driver keeps",
    )  # fmt: skip
