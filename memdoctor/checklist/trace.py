"""The checklist as a trace: its steps in order, each with what was probed for it and what that showed here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memdoctor.analysis import breakdown_of
from memdoctor.checklist.asking import FALLBACK, MICRO, ONE, half, minimal, unchecked
from memdoctor.checklist.causes import Cause, cause_of
from memdoctor.checklist.holders import always, at_batch, holders
from memdoctor.checklist.looking import made, moved, probed, reserved, runs, takes, told, too_many
from memdoctor.levers.kinds import ACCUMULATED
from memdoctor.levers.wording import in_words
from memdoctor.matrix import SMALL_BATCHES
from memdoctor.records import Category, Change, ChecklistStep, Examination, PhaseName, Plan
from memdoctor.rules import Evidence
from memdoctor.rules.accumulating import never_accumulates, stops
from memdoctor.rules.several_gpus.strategies import sharded_bytes
from memdoctor.units import format_bytes

VERIFY = "memdoctor probe --verify-accumulation"


def trace_of(evidence: Evidence, plan: Sequence[Plan]) -> tuple[ChecklistStep, ...]:
    """The steps of the checklist; one of them has the cause where the target does not fit, and none where it fits."""
    cause = cause_of(evidence)
    return (
        _where(evidence, cause), _accumulation(evidence, cause), _minimal(evidence), _batch(evidence, cause),
        _length_and_size(evidence, cause), _checkpointing(evidence), _sharding(evidence), _after_all(evidence, plan),
    )  # fmt: skip


def _step(
    number: str,
    question: str,
    sentences: Iterable[str],
    probes: tuple[Change, ...] = (),
    cause: Cause | None = None,
    *,
    done: bool = True,
) -> ChecklistStep:
    """A step; where the cause was found here, it comes first."""
    here = cause is not None and cause.step == number
    said = (cause.sentence, *sentences) if cause is not None and here else sentences
    return ChecklistStep(id=number, question=question, probed=probes, showed=told(said), made=done, cause=here)


def _where(evidence: Evidence, cause: Cause | None) -> ChecklistStep:
    """Tests the saying that with a small batch it is the activations."""
    batches = [{"batch_size": batch} for batch in SMALL_BATCHES if batch <= evidence.workload.batch_size]
    return _step(
        "1",
        "Where is the memory, and is it the activations when the batch is small?",
        (holders(evidence), *(at_batch(evidence, change) for change in batches)),
        made(evidence, *batches),
        cause,
    )


def _accumulation(evidence: Evidence, cause: Cause | None) -> ChecklistStep:
    """Whether it is configured and acts; whether checkpointing was switched on, or ignored."""
    workload = evidence.workload
    steps, gpus = workload.gradient_accumulation_steps, workload.world_size
    other: Change = MICRO if steps > 1 else {"gradient_accumulation_steps": ACCUMULATED}
    effective = (
        f"Effective batch: {workload.batch_size} per device x {steps} micro-batch{'es' if steps > 1 else ''} x {gpus} "
        f"GPU{'s' if gpus > 1 else ''} = {workload.batch_size * steps * gpus}; memory is that of {workload.batch_size}"
    )
    return _step(
        "2",
        "Is gradient accumulation configured, and does it act?",
        (effective, _acts(evidence, other), _checkpointed(evidence), f"Whether the gradients are right: {VERIFY}"),
        made(evidence, other),
        cause,
    )


def _acts(evidence: Evidence, other: Change) -> str:
    """One optimizer step for all micro-batches, and the peak beside that of one."""
    found = probed(evidence, other)
    steps = evidence.workload.gradient_accumulation_steps
    if found is None:
        return ""
    one, several = (found, evidence.examination) if steps > 1 else (evidence.examination, found)
    before, after = reserved(one), reserved(several)
    micro = several.workload.gradient_accumulation_steps
    phases = [phase.name for phase in several.timeline.phases if phase.step == 1]
    forwards, updates = phases.count(PhaseName.FORWARD), phases.count(PhaseName.OPTIMIZER)
    verdict = "it acts" if steps > 1 else f"not in use; probed with {micro}"
    return (
        f"{verdict[0].upper()}{verdict[1:]}: {forwards} forward passes to {updates} optimizer step"
        f"{'' if updates == 1 else 's'}, and it {moved(before, after)} beside one micro-batch "
        f"({format_bytes(before)}): gradients of {format_bytes(evidence.most_held[Category.GRADIENTS])} persist"
    )


def _checkpointed(evidence: Evidence) -> str:
    if not evidence.workload.gradient_checkpointing:
        return "Checkpointing is off"
    off = probed(evidence, {"gradient_checkpointing": False})
    if off is None:
        return "Checkpointing is on"
    ignored = reserved(off) == evidence.peak.reserved_bytes
    return f"Checkpointing is on{' and ignored: it' if ignored else ', and'} " + moved(
        reserved(off), evidence.peak.reserved_bytes
    )


def _minimal(evidence: Evidence) -> ChecklistStep:
    workload, device = evidence.workload, evidence.device
    question = "Does the minimal configuration work?"
    smallest = minimal(workload, device)
    found, without = probed(evidence, smallest), probed(evidence, unchecked(workload, device))
    if found is None:
        why = "not needed: the target fits" if evidence.fits else f"{in_words(smallest)} could not be probed"
        return _step("3", question, (_capital(why),), done=False)
    off = "" if without is None else f"Without checkpointing: {takes(without)}; {_activations_of(found, without)}"
    return _step(
        "3",
        question,
        (f"{_capital(in_words(smallest))}: {takes(found)}", off),
        made(evidence, smallest, unchecked(workload, device)),
    )


def _activations_of(on: Examination, off: Examination) -> str:
    held = [format_bytes(breakdown_of(found).activations) for found in (off, on)]
    return f"activations hold {held[0]} of that peak, and {held[1]} with checkpointing"


def _batch(evidence: Evidence, cause: Cause | None) -> ChecklistStep:
    question = "Does a per-device batch of 1 run?"
    probes = made(evidence, ONE, FALLBACK)
    already = evidence.workload.batch_size == 1
    if not probes and not already:
        return _step("4a", question, ("Batch 1 could not be probed",), done=False)
    asked = () if cause is not None and cause.step == "4a" else (ONE,)  # the cause has the figures of batch 1
    found = [(change, probed(evidence, change)) for change in (*asked, FALLBACK)]
    words = [f"{_capital(in_words(change))}: {takes(one)}" for change, one in found if one is not None]
    return _step("4a", question, ("The batch is 1 already" if already else "", *words), probes, cause)


def _length_and_size(evidence: Evidence, cause: Cause | None) -> ChecklistStep:
    question = "If not: is it the length, the size of the model, or what else is loaded?"
    one, shorter = probed(evidence, ONE), half(evidence.workload)
    here = cause is not None and cause.step == "4b"
    if not here and one is not None and runs(one):
        return _step("4b", question, ("Not asked: batch 1 runs", always(evidence)), done=False)
    found = probed(evidence, shorter)
    tells = found is not None and not (cause is not None and cause.kind == "length")  # that one has these figures
    short = f"1 sample of {shorter['seq_length']} tokens: {takes(found)}" if found is not None and tells else ""
    return _step("4b", question, (short, always(evidence)), made(evidence, shorter), cause)


def _checkpointing(evidence: Evidence) -> ChecklistStep:
    question = "Does checkpointing change the peak, or does it only cost time?"
    on = evidence.workload.gradient_checkpointing
    change: Change = {"gradient_checkpointing": not on}
    found = probed(evidence, change)
    if found is None:
        lever = evidence.lever("checkpointing")
        why = "" if lever is None or lever.status == "probed" else f": {lever.sentence}"
        return _step("4c", question, (f"Not probed{why}",), done=False)
    off, with_ = (found, evidence.examination) if on else (evidence.examination, found)
    before, after = reserved(off), reserved(with_)
    time = "" if before > after else "; it only costs time here"
    return _step(
        "4c",
        question,
        (f"It {moved(before, after)} ({format_bytes(before)} without it, {format_bytes(after)} with it){time}",),
        made(evidence, change),
    )


def _sharding(evidence: Evidence) -> ChecklistStep:
    """ZeRO, as arithmetic."""
    workload, shared = evidence.workload, sharded_bytes("zero2", evidence.breakdown)
    alone = "one GPU, where nothing is shared" if workload.world_size == 1 else f"{workload.world_size} GPUs"
    said = (
        f"Several GPUs cannot be probed yet, and this is {alone}",
        f"Stage 2 would share optimizer state and gradients ({format_bytes(shared)} at this peak), and no activations",
    )
    return _step("4d", "DeepSpeed ZeRO: which stage, and what does it share?", said, done=False)


def _after_all(evidence: Evidence, plan: Sequence[Plan]) -> ChecklistStep:
    """Accumulation is for a batch that is wanted and does not fit."""
    workload, one = evidence.workload, probed(evidence, ONE)
    batch, wanted = workload.batch_size, workload.batch_size * workload.gradient_accumulation_steps
    if evidence.fits:
        said = f"Not needed: the batch of {batch} fits"
    elif never := never_accumulates(workload):
        said = f"It cannot: {never}"
    elif one is not None and runs(one):
        said = _can(evidence, plan, wanted)
    else:
        said = f"It cannot: {'not even batch 1 runs' if one is not None else 'batch 1 could not be probed'}"
    first = next((entry for entry in plan if entry.fits), None)
    fitting = (
        ""
        if first is None
        else (f"First of the plan that fits: {in_words(first.change)}, {format_bytes(first.peak.reserved_bytes)}")
    )
    return _step("5", "Can accumulation help at all?", (said, fitting), () if first is None else (first.change,))


def _can(evidence: Evidence, plan: Sequence[Plan], wanted: int) -> str:
    """Batch 1 runs; whether several micro-batches of it do, by themselves or with what the plan changes beside."""
    stopped = stops(evidence, 1)
    most = evidence.scaling.largest_batch_that_fits if evidence.scaling else None
    divisor = max(size for size in range(1, (most or 1) + 1) if wanted % size == 0)
    if stopped is None and most and (another := too_many(wanted, divisor, most)):
        return f"It can, with another effective batch: {another}"
    if stopped is None:
        return f"It can: smaller micro-batches make up an effective batch of {wanted}"
    helped = next((entry for entry in plan if entry.fits and "gradient_accumulation_steps" in entry.change), None)
    beside = "" if helped is None else f"; with more changed it can: {in_words(helped.change)}"
    return f"It cannot by itself: batch 1 runs, but {stopped}{beside}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
