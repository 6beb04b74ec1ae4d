"""Checkpointing saves about half."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.checklist.looking import probed
from memdoctor.claims.belief import Belief, Verdict, pair_in_words, share_saved
from memdoctor.matrix import LENGTHS
from memdoctor.records import Change, Examination, PhaseName, Workload
from memdoctor.rules import Evidence

LEAST_SHARE = 0.4
"""Of the reserved peak at the target: "about half" is half to a tenth of the whole, or more. Ours."""
MORE_THAN_HALF = 0.6
"""From here on it is said to be more: a tenth of the whole on the other side. Ours."""


def _places(workload: Workload, longest: int | None) -> tuple[tuple[str, Change], ...]:
    """Where it is looked at, other than the target's own length and batch."""
    lengths = [length for length in LENGTHS if length != workload.seq_length and length <= (longest or length)]
    return (
        ("at the target", {}),
        *((f"at {length} tokens", {"seq_length": length}) for length in lengths),
        *([("at batch 1", {"batch_size": 1})] if workload.batch_size > 1 else []),
    )


def _changes(workload: Workload, longest: int | None) -> tuple[Change, ...]:
    both = (False, True)
    return tuple({**place, "gradient_checkpointing": on} for _, place in _places(workload, longest) for on in both)


def _weigh(evidence: Evidence) -> Verdict:
    found = [(where, _pair(evidence, place)) for where, place in _places(evidence.workload, None)]
    pairs = [(where, pair) for where, pair in found if pair is not None]
    if not pairs or pairs[0][0] != "at the target":
        return None, "the target could not be probed both with checkpointing and without", {}
    shown = ", ".join(pair_in_words(where, *pair) for where, pair in pairs)
    share = share_saved(*pairs[0][1])
    without = peak_of(pairs[0][1][0])
    step = without.phase == PhaseName.OPTIMIZER
    why = "; the peak is the optimizer step, which keeps no activations" if step else ""
    more = "; that is more than half" if share > MORE_THAN_HALF else ""
    figures = {where.replace(" ", "_") + "_share_saved": round(share_saved(*pair), 4) for where, pair in pairs}
    return share >= LEAST_SHARE, f"the reserved peak: {shown}{more}{why}", figures


def _pair(evidence: Evidence, place: Change) -> tuple[Examination, Examination] | None:
    off = probed(evidence, {**place, "gradient_checkpointing": False})
    on = probed(evidence, {**place, "gradient_checkpointing": True})
    return None if off is None or on is None else (off, on)


BELIEF = Belief("checkpointing", "checkpointing saves about half", _changes, _weigh)
