"""Accumulation lowers memory."""

from __future__ import annotations

from memdoctor.checklist.asking import MICRO, ONE
from memdoctor.checklist.looking import probed, reserved
from memdoctor.claims.belief import Belief, Verdict, share_saved
from memdoctor.levers.kinds import ACCUMULATED
from memdoctor.records import Category, Change, Workload
from memdoctor.rules import Evidence
from memdoctor.rules.reading import most_alive
from memdoctor.units import format_bytes

LEAST_SHARE = 0.01
"""Of the reserved peak: below a hundredth it is the allocator's segments of 2 and 20 MiB
(c10/core/AllocatorConfig.h, kSmallBuffer and kLargeBuffer)."""


def _other(workload: Workload) -> Change:
    return MICRO if workload.gradient_accumulation_steps > 1 else {"gradient_accumulation_steps": ACCUMULATED}


def _changes(workload: Workload, longest: int | None) -> tuple[Change, ...]:
    return (_other(workload), ONE)


def _weigh(evidence: Evidence) -> Verdict:
    found = probed(evidence, _other(evidence.workload))
    if found is None:
        return None, "the target could not be probed both with accumulation and without", {}
    pair = (evidence.examination, found)
    one, several = pair if evidence.workload.gradient_accumulation_steps == 1 else pair[::-1]
    micro, added = several.workload.gradient_accumulation_steps, reserved(several) - reserved(one)
    kept = sum(b.bytes for b in most_alive(several.timeline, lambda block: block.category is Category.GRADIENTS))
    apart = "the same" if added == 0 else f"{format_bytes(abs(added))} {'more' if added > 0 else 'less'}"
    smaller = probed(evidence, ONE)
    instead = (
        ""
        if smaller is None or evidence.workload.batch_size == 1
        else (f"; what saves is the smaller per-device batch: batch 1 takes {format_bytes(reserved(smaller))}")
    )
    showed = (
        f"{micro} micro-batches take {format_bytes(reserved(several))}, one takes {format_bytes(reserved(one))}: "
        f"{apart}, and {format_bytes(kept)} of gradients persist from one to the next{instead}"
    )
    figures = {"micro_batches": micro, "added_bytes": added, "gradient_bytes": kept}
    return share_saved(one, several) >= LEAST_SHARE, showed, figures


BELIEF = Belief("accumulation", "accumulation lowers memory", _changes, _weigh)
