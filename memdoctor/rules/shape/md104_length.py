"""MD104: the target does not fit, and a shorter sequence does. Where one sample fits, that is worth knowing only."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.records import Attention, Category, Completed, Examination, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import at, left, most_alive, varied
from memdoctor.rules.rule import Need, Remedy, Rule
from memdoctor.units import format_bytes


def shorter(evidence: Evidence) -> dict[int, Examination]:
    """What was probed of shorter sequences, by their length."""
    length = evidence.workload.seq_length
    return {tried: found for tried, found in varied(evidence, "seq_length").items() if tried < length}


def check(evidence: Evidence) -> Finding | None:
    """A probed shorter length fits; says how activations grew from there."""
    fitting = {tried: found for tried, found in shorter(evidence).items() if isinstance(found.outcome, Completed)}
    if evidence.fits or not fitting:
        return None
    workload, longest = evidence.workload, max(fitting)
    there = fitting[longest]
    before, now = _activations(there), evidence.most_held[Category.ACTIVATIONS]
    quadratic = workload.attention is Attention.EAGER
    kind = "; eager attention's part of it grows with the square" if quadratic else ""
    return RULE.finding(
        "info" if _one_sample_fits(evidence) else "error",
        f"{workload.batch_size} x {workload.seq_length} tokens need {format_bytes(evidence.peak.reserved_bytes)} of "
        f"the {format_bytes(evidence.limit_bytes)} that PyTorch can reserve, {workload.batch_size} x {longest} fit "
        f"with {at(there)}: for {workload.seq_length / longest:.2f} times the tokens, activations go from "
        f"{format_bytes(before)} to {format_bytes(now)}{kind}",
        {
            "seq_length": workload.seq_length, "longest_probed_that_fits": longest,
            "reserved_bytes": evidence.peak.reserved_bytes, "shorter_reserved_bytes": peak_of(there).reserved_bytes,
        },
        at_stake_bytes=max(now - before, 0),
        remedies=left(evidence, RULE.remedies),
    )  # fmt: skip


def _one_sample_fits(evidence: Evidence) -> bool:
    """Whether batch 1 fits at this length: then a smaller batch does, and nobody has to cut texts off."""
    one = varied(evidence, "batch_size").get(1)
    return one is not None and isinstance(one.outcome, Completed)


def _activations(examination: Examination) -> int:
    return sum(block.bytes for block in most_alive(examination.timeline, lambda b: b.category is Category.ACTIVATIONS))


RULE = Rule(
    id="MD104",
    title="The length decides whether it fits",
    why=(
        "Everything that the encoder keeps for backward grows with the number of tokens, and with the square of the "
        "length where attention keeps its scores. Padding to 512 what is 128 tokens long is paid in full."
    ),
    needs=(
        Need(
            "where the target does not fit, a probe with a shorter sequence",
            lambda evidence: None if evidence.fits or shorter(evidence) else "no shorter sequence was probed",
        ),
    ),
    remedies=(
        Remedy("a smaller per-device batch with more gradient accumulation", "time", "batch", accumulates=True),
        Remedy("activation checkpointing", "time", "checkpointing"),
        Remedy("padding to the longest of the batch instead of to the maximum", "none"),
        Remedy("a shorter maximum length, which cuts off longer texts", "task", "length"),
    ),
    check=check,
)
