"""Beliefs in circulation, each beside what was probed for one's own workload."""

from memdoctor.claims import accumulation, checkpointing, half_precision, length, small_batch, zero
from memdoctor.claims.belief import Belief
from memdoctor.records import Change, Claim, Workload
from memdoctor.rules import Evidence

BELIEFS: tuple[Belief, ...] = (
    half_precision.BELIEF, checkpointing.BELIEF, length.BELIEF, accumulation.BELIEF, small_batch.BELIEF, zero.BELIEF,
)  # fmt: skip
"""All that are judged, in the order of the table."""


def claim_probes(workload: Workload, longest: int | None) -> tuple[Change, ...]:
    """What has to be probed for all claims; ``longest`` is the most tokens that the model takes."""
    changes = [change for belief in BELIEFS for change in belief.changes(workload, longest)]
    return tuple(change for number, change in enumerate(changes) if change not in changes[:number])


def claims_of(evidence: Evidence) -> tuple[Claim, ...]:
    """Every claim, judged."""
    return tuple(belief.judge(evidence) for belief in BELIEFS)


__all__ = ["BELIEFS", "Belief", "claim_probes", "claims_of"]
