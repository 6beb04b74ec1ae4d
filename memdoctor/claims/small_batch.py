"""With a small batch it is the activations."""

from __future__ import annotations

from memdoctor.analysis import breakdown_of, peak_of
from memdoctor.checklist.looking import probed, static_at_peak
from memdoctor.claims.belief import Belief, Verdict
from memdoctor.matrix import SMALL_BATCHES
from memdoctor.records import Change, Examination, Workload
from memdoctor.rules import Evidence
from memdoctor.rules.reading import percent
from memdoctor.units import format_bytes

LEAST_SHARE = 0.5
"""Of what is allocated at the peak: "it is the activations" where they hold half of it. Ours."""


def _changes(workload: Workload, longest: int | None) -> tuple[Change, ...]:
    return tuple({"batch_size": batch} for batch in SMALL_BATCHES)


def _weigh(evidence: Evidence) -> Verdict:
    found = {batch: probed(evidence, {"batch_size": batch}) for batch in SMALL_BATCHES}
    there = {batch: one for batch, one in found.items() if one is not None}
    if not there:
        return None, "no small batch could be probed", {}
    shares = {batch: breakdown_of(one).activations / breakdown_of(one).allocated for batch, one in there.items()}
    return (
        all(share >= LEAST_SHARE for share in shares.values()),
        "; ".join(f"at batch {batch} {_holders(one)}" for batch, one in there.items()),
        {f"activations_share_at_batch_{batch}": round(share, 4) for batch, share in shares.items()},
    )


def _holders(examination: Examination) -> str:
    parts, peak, static = breakdown_of(examination), peak_of(examination), static_at_peak(examination)
    return (
        f"activations hold {format_bytes(parts.activations)} of the {format_bytes(peak.allocated_bytes)} in "
        f"{peak.phase}, {percent(parts.activations, parts.allocated)}, and parameters, gradients and optimizer state "
        f"{format_bytes(static)}, {percent(static, parts.allocated)}"
    )


BELIEF = Belief("small-batch", "with a small batch it is the activations", _changes, _weigh)
