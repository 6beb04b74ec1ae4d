"""The step of the checklist at which the cause is found: exactly one where the target does not fit.

The finders are asked in order, from what has nothing to do with the workload to what is its core: who else is on the
card, evaluation, static state that is larger than the card, gradients that accumulation keeps, the batch, the optimizer
step, the length, and the size of the model. The last one always answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memdoctor.analysis import breakdown_of, peak_of, ran_out_at
from memdoctor.checklist.asking import FALLBACK, FALLBACK_ACCUMULATION, MICRO, ONE, half
from memdoctor.checklist.looking import probed, reserved, runs, static_at_peak
from memdoctor.records import Category, Examination, PhaseName
from memdoctor.rules import Evidence
from memdoctor.rules.evidence import STATIC
from memdoctor.rules.reading import percent
from memdoctor.units import format_bytes

_STEP = (PhaseName.OPTIMIZER, PhaseName.CLIP)
_HOLDS = {
    Category.ACTIVATIONS: ("The length", "activations of one sample hold"),
    Category.INPUTS_AND_BUFFERS: ("What is loaded beside the model", "inputs and buffers hold"),
    Category.AUTOCAST_COPIES: ("Mixed precision on a model of this size", "copies of the weights in 16 bits hold"),
    Category.TEMPORARIES: ("What operators need while they run", "temporaries hold"),
    Category.WORKSPACE: ("The workspace of libraries", "cuBLAS and the like, at any batch and length, hold"),
}  # who holds most of one sample's peak, and that it does


@dataclass(frozen=True, slots=True)
class Cause:
    """The id of the checklist's step, the kind of cause, and a sentence that tells it, without its full stop."""

    step: str
    kind: str
    sentence: str


def cause_of(evidence: Evidence) -> Cause | None:
    """The cause where the target does not fit; ``None`` where it fits."""
    if evidence.fits:
        return None
    found = (find(evidence) for find in _FINDERS)
    return next(cause for cause in found if cause is not None)


def _others(evidence: Evidence) -> Cause | None:
    """The target would fit, had it the card to itself."""
    others, needs = evidence.device.other_processes_bytes, evidence.peak.reserved_bytes
    alone = evidence.limit_bytes + others
    if not others or needs > alone:
        return None
    return Cause(
        "1",
        "others",
        f"Other processes are the cause: they hold {format_bytes(others)} of the card, and leave "
        f"{format_bytes(evidence.limit_bytes)} for the {format_bytes(needs)} of this run, which would fit without them "
        f"({format_bytes(alone)})",
    )


def _evaluation(evidence: Evidence) -> Cause | None:
    """Evaluation comes after training: a run that stops there has trained."""
    if evidence.ran_out is None or evidence.ran_out.phase != PhaseName.EVALUATION:
        return None
    trained = evidence.phase_peak(PhaseName.FORWARD, PhaseName.BACKWARD, *_STEP)
    evaluated = evidence.phase_peak(PhaseName.EVALUATION)
    return Cause(
        "1",
        "evaluation",
        f"Evaluation is the cause: training fits, with {format_bytes(trained)} allocated at its peak, and evaluation "
        f"of {evidence.workload.eval_samples:,} samples takes {format_bytes(evaluated)}, "
        f"of the {format_bytes(evidence.limit_bytes)} that PyTorch can have",
    )


def _static(evidence: Evidence) -> Cause | None:
    static, limit = evidence.static_bytes, evidence.limit_bytes
    if static <= limit:
        return None
    held = " + ".join(f"{kind.value.replace('_', ' ')} {format_bytes(evidence.most_held[kind])}" for kind in STATIC)
    return Cause(
        "4b",
        "static state",
        f"The size of the model is the cause: {held} = {format_bytes(static)}, "
        f"{format_bytes(static - limit)} more than the {format_bytes(limit)} that PyTorch can have, before the first "
        "activation",
    )


def _accumulation(evidence: Evidence) -> Cause | None:
    """The same micro-batch fits where gradients do not have to persist beside it."""
    steps, without = evidence.workload.gradient_accumulation_steps, probed(evidence, MICRO)
    if steps == 1 or without is None or not runs(without):
        return None
    return Cause(
        "2",
        "accumulation",
        f"Accumulation is the cause: one micro-batch takes {format_bytes(reserved(without))} and fits, {steps} of them "
        f"take {format_bytes(evidence.peak.reserved_bytes)}, since {_gradients(evidence)} of gradients persist from "
        "one to the next",
    )


def _batch(evidence: Evidence) -> Cause | None:
    batch, one = evidence.workload.batch_size, probed(evidence, ONE)
    if batch == 1 or one is None or not runs(one):
        return None
    several = probed(evidence, FALLBACK)
    each = (evidence.peak.reserved_bytes - reserved(one)) // (batch - 1)
    spoilt = ""
    if several is not None and not runs(several):
        spoilt = f"; {FALLBACK_ACCUMULATION} micro-batches of it take {format_bytes(reserved(several))}"
    return Cause(
        "4a",
        "batch",
        f"The batch is the cause: 1 sample takes {format_bytes(reserved(one))} and fits, {batch} take "
        f"{format_bytes(evidence.peak.reserved_bytes)}, {format_bytes(each)} for each one more, and PyTorch can have "
        f"{format_bytes(evidence.limit_bytes)}{spoilt}",
    )


def _optimizer_step(evidence: Evidence) -> Cause | None:
    """The smallest batch stops, or has its peak, where no sample plays a part."""
    one = probed(evidence, ONE)
    if one is None or not _stops_in_step(one):
        return None
    parts, static = breakdown_of(one), static_at_peak(one)
    return Cause(
        "1",
        "optimizer step",
        f"The optimizer step is the cause: at batch 1 its peak is {format_bytes(parts.allocated)}, of which static "
        f"state is {format_bytes(static)} and temporaries {format_bytes(parts.temporaries)}, for "
        f"{format_bytes(evidence.limit_bytes)} that PyTorch can have; no batch and no length changes that",
    )


def _stops_in_step(examination: Examination) -> bool:
    stopped = ran_out_at(examination)
    return peak_of(examination).phase in _STEP or (stopped is not None and stopped.phase in _STEP)


def _length(evidence: Evidence) -> Cause | None:
    one, shorter, length = (
        probed(evidence, ONE),
        probed(evidence, half(evidence.workload)),
        evidence.workload.seq_length,
    )
    if one is None or shorter is None or not runs(shorter) or runs(one):
        return None
    return Cause(
        "4b",
        "length",
        f"The length is the cause: 1 sample of {length} tokens takes {format_bytes(reserved(one))} and does not fit, "
        f"1 of {half(evidence.workload)['seq_length']} takes {format_bytes(reserved(shorter))} and fits",
    )


def _one_sample(evidence: Evidence) -> Cause | None:
    """Neither fewer samples nor half the tokens are enough: the largest part of batch 1's peak is named."""
    one = probed(evidence, ONE)
    if one is None:
        return None
    parts, static = breakdown_of(one), static_at_peak(one)
    rest = {kind: getattr(parts, kind.value) for kind in Category if kind not in STATIC}
    most = max(rest, key=lambda kind: rest[kind])
    what, holds = ("The size of the model", "static state holds") if static >= rest[most] else _HOLDS[most]
    size = max(static, rest[most])
    return Cause(
        "4b",
        "one sample",
        f"{what} is the cause: at batch 1 {holds} {format_bytes(size)} of the {format_bytes(parts.allocated)} at the "
        f"peak, {percent(size, parts.allocated)}",
    )


def _largest_part(evidence: Evidence) -> Cause:
    """What holds most at the target's peak: all that is known where no smaller batch could be probed."""
    held = {category: getattr(evidence.breakdown, category.value) for category in Category}
    most = max(held, key=lambda category: held[category])
    return Cause(
        "1",
        "unknown",
        f"What holds most is {most.value.replace('_', ' ')}: {format_bytes(held[most])} of the "
        f"{format_bytes(evidence.peak.allocated_bytes)} at the peak in {evidence.peak.phase}; batch 1 could not be "
        "probed",
    )


def _gradients(evidence: Evidence) -> str:
    return format_bytes(evidence.most_held[Category.GRADIENTS])


_FINDERS: tuple[Callable[[Evidence], Cause | None], ...] = (
    _others, _evaluation, _static, _accumulation, _batch, _optimizer_step, _length, _one_sample, _largest_part,
)  # fmt: skip
