"""Who holds the peak, in a sentence: of the target, and at a small batch."""

from __future__ import annotations

from memdoctor.analysis import breakdown_of, peak_of
from memdoctor.checklist.looking import probed, static_at_peak
from memdoctor.records import Breakdown, Category, Change
from memdoctor.rules import Evidence
from memdoctor.rules.reading import percent, shaped
from memdoctor.rules.static_state import most_alive, static_in_words
from memdoctor.units import format_bytes

NAMED = 3  # holders of a peak that are named; the rest is in the breakdown


def holders(evidence: Evidence) -> str:
    """The target's peak and its largest holders."""
    parts, peak = evidence.breakdown, evidence.peak
    largest = [f"{_word(category)} {format_bytes(size)}" for category, size in _ranked(parts)[:NAMED] if size]
    return (
        f"Batch {evidence.workload.batch_size}: {format_bytes(peak.allocated_bytes)} allocated in {peak.phase}, "
        f"{', '.join(largest)}"
    )


def at_batch(evidence: Evidence, change: Change) -> str:
    """Whether activations hold most at this batch; empty where it was not probed."""
    found = probed(evidence, change)
    if found is None:
        return ""
    parts, peak, static = breakdown_of(found), peak_of(found), static_at_peak(found)
    share = percent(parts.activations, parts.allocated)
    is_it = "the activations" if parts.activations > static else "not the activations"
    return (
        f"Batch {change['batch_size']}: {is_it}, which hold {share} of {format_bytes(peak.allocated_bytes)} in "
        f"{peak.phase}; parameters, gradients and optimizer state hold {percent(static, parts.allocated)}"
    )


def _ranked(parts: Breakdown) -> list[tuple[Category, int]]:
    held = [(category, int(getattr(parts, category.value))) for category in Category]
    return sorted(held, key=lambda item: -item[1])


def _word(category: Category) -> str:
    return category.value.replace("_", " ")


def always(evidence: Evidence) -> str:
    """What is there at any batch and length, with its arithmetic, and the largest single parameter."""
    static = f"At any batch and length: {static_in_words(evidence)}, together {format_bytes(evidence.static_bytes)}"
    parameters = most_alive(evidence, Category.PARAMETERS)
    if not parameters:
        return static
    block = max(parameters, key=lambda block: block.bytes)
    where = f" in {block.module}" if block.module else ""
    return f"{static}; the largest parameter is {shaped(block.shape)}{where}, {format_bytes(block.bytes)}"
