"""fp16 saves up to 40 % (others say half)."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.checklist.looking import changing, probed
from memdoctor.claims.belief import Belief, Verdict, pair_in_words, share_saved
from memdoctor.records import Change, Dtype, Examination, Precision, Workload
from memdoctor.rules import Evidence

LEAST_SHARE = 0.35
"""Of the reserved peak at the target: the 40 % that are promised, less an eighth for "up to". Ours."""

_FP32: Change = {"precision": Precision.FP32.value}
_PLACES: tuple[tuple[str, str, Change], ...] = (
    ("target", "at the target", {}),
    ("batch_1", "at batch 1", {"batch_size": 1}),
    ("checkpointed", "with checkpointing", {"gradient_checkpointing": True}),
)


def _kind(workload: Workload) -> Change:
    used = workload.precision if workload.precision is not Precision.FP32 else Precision.FP16
    return {"precision": used.value}


def _changes(workload: Workload, longest: int | None) -> tuple[Change, ...]:
    if workload.dtype is not Dtype.FLOAT32:
        return ()
    cast = _kind(workload)
    return tuple({**place, **precision} for _, _, place in _PLACES for precision in (_FP32, cast))


def _weigh(evidence: Evidence) -> Verdict:
    if evidence.workload.dtype is not Dtype.FLOAT32:
        return None, f"the weights are {evidence.workload.dtype.value}: there is no fp32 step to compare with", {}
    cast = _kind(evidence.workload)
    places = [place for place in _PLACES if place[0] == "target" or changing(evidence, place[2])]
    pairs = {name: (where, _pair(evidence, place, cast)) for name, where, place in places}
    at_target = pairs["target"][1]
    if at_target is None:
        return None, "the step in the other precision could not be probed", {}
    there = {name: (where, pair) for name, (where, pair) in pairs.items() if pair is not None}
    share = share_saved(*at_target)
    before, after = (peak_of(one).allocated_bytes for one in at_target)
    shown = ", ".join(pair_in_words(where, *pair) for where, pair in there.values())
    figures = {f"{name}_share_saved": round(share_saved(*pair), 4) for name, (_, pair) in there.items()}
    showed = (
        f"the reserved peak under {cast['precision']}: {shown}; of what is allocated at the target "
        f"{round(100 * (1 - after / before))} %. Weights, gradients and optimizer state stay fp32"
    )
    return share >= LEAST_SHARE, showed, figures


def _pair(evidence: Evidence, place: Change, cast: Change) -> tuple[Examination, Examination] | None:
    full, mixed = probed(evidence, {**place, **_FP32}), probed(evidence, {**place, **cast})
    return None if full is None or mixed is None else (full, mixed)


BELIEF = Belief("half-precision", "fp16 saves up to 40 % (others: half)", _changes, _weigh)
