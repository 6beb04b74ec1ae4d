"""Memory is nearly linear in the length: about 800, 450 and 250 MB a sample at 512, 256 and 128 tokens."""

from __future__ import annotations

from memdoctor.analysis import phases_of
from memdoctor.checklist.looking import probed
from memdoctor.claims.belief import Belief, Verdict
from memdoctor.matrix import LENGTHS
from memdoctor.records import Attention, Change, Examination, PhaseName, Workload
from memdoctor.rules import Evidence
from memdoctor.units import format_bytes

BATCHES = (2, 3)  # batch 1 may run other kernels
SAID = {512: 800_000_000, 256: 450_000_000, 128: 250_000_000}
"""Bytes a sample by tokens, as the claim goes round."""
MOST_QUADRATIC = 0.1
"""Of a sample's bytes at the longest length: a tenth that grows with the square still is "nearly linear". Ours."""
NEAR = 0.25
"""How far a figure may be from the one that is said: its steps of 250 to 450 to 800 are a quarter apart from
doubling. Ours."""


def _others(workload: Workload) -> Change:
    """The attention that the target does not use, as the levers write it."""
    other = Attention.SDPA if workload.attention is Attention.EAGER else Attention.EAGER
    return {"attention": other.value}


def _changes(workload: Workload, longest: int | None) -> tuple[Change, ...]:
    if longest is not None and longest < max(LENGTHS):
        return ()
    return tuple(
        {**attention, "seq_length": length, "batch_size": batch}
        for attention in ({}, _others(workload))
        for length in LENGTHS
        for batch in BATCHES
    )


def _weigh(evidence: Evidence) -> Verdict:
    used = evidence.workload.attention
    name = used.value if used is not None else "its own attention"
    other = _others(evidence.workload)
    by_attention = {name: _samples(evidence, {}), str(other["attention"]): _samples(evidence, other)}
    here = by_attention[name]
    if here is None:
        most = max(LENGTHS)
        return (
            None,
            f"it takes batch {BATCHES[0]} and {BATCHES[1]} at each length up to {most}, not all of them probed",
            {},
        )
    shown = [_shown(which, found) for which, found in by_attention.items() if found is not None]
    curved = _quadratic(here) / here[max(here)]
    near = all(abs(here[length] - said) <= NEAR * said for length, said in SAID.items())
    figures = {f"bytes_a_sample_at_{length}": size for length, size in here.items()}
    said = "" if near else f"; 800 MB is {format_bytes(SAID[512])}, {SAID[512] / here[512]:.1f} times what it is here"
    linear = curved <= MOST_QUADRATIC
    return (
        linear and near,
        f"{'linear' if linear else 'not linear'} with {name}: {'; '.join(shown)}{said}",
        {**figures, "quadratic_share": round(curved, 4), "linear": linear},
    )


def _samples(evidence: Evidence, attention: Change) -> dict[int, int] | None:
    """Bytes that one more sample takes at the peak of forward, by length; ``None`` unless all were probed."""
    sizes = {}
    for length in LENGTHS:
        found = [probed(evidence, {**attention, "seq_length": length, "batch_size": batch}) for batch in BATCHES]
        few, more = (_most(one) if one is not None else None for one in found)
        if few is None or more is None:
            return None
        sizes[length] = more - few
    return sizes


def _most(examination: Examination) -> int:
    """Of forward alone: at a short length the peak of backward is at its end, where gradients hold it."""
    return max(use.peak_allocated_bytes for use in phases_of(examination) if use.name == PhaseName.FORWARD)


def _quadratic(sizes: dict[int, int]) -> float:
    """Of a sample's bytes at the longest length, those that grow with its square: a parabola through the three."""
    (a, fa), (b, fb), (c, fc) = sorted(sizes.items())
    curvature = ((fc - fb) / (c - b) - (fb - fa) / (b - a)) / (c - a)
    return curvature * c * c


def _shown(attention: str, sizes: dict[int, int]) -> str:
    figures = ", ".join(f"{format_bytes(size)} at {length}" for length, size in sorted(sizes.items(), reverse=True))
    part = round(max(100 * _quadratic(sizes) / sizes[max(sizes)], 0))
    return f"{attention} takes {figures} a sample in forward, and {part} % of the first grows with the square"


BELIEF = Belief(
    "length", "memory is nearly linear in the length: about 800, 450, 250 MB a sample at 512, 256, 128", _changes,
    _weigh,
)  # fmt: skip
