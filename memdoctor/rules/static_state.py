"""The static state in figures: what is kept for every parameter, and its arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from memdoctor.records import Block, Category
from memdoctor.rules import reading
from memdoctor.rules.evidence import STATIC, Evidence
from memdoctor.units import format_bytes


def most_alive(evidence: Evidence, category: Category) -> tuple[Block, ...]:
    """The blocks of a category at the first instant at which it holds most."""
    return reading.most_alive(evidence.examination.timeline, lambda block: block.category is category)


def elements(blocks: Iterable[Block]) -> int:
    """How many numbers these blocks hold, by their shapes."""
    return sum(prod(block.shape) for block in blocks)


def parameters_of(evidence: Evidence) -> int:
    """How many parameters the model has."""
    return elements(most_alive(evidence, Category.PARAMETERS))


def trained_of(evidence: Evidence) -> int:
    """How many parameters have a gradient. Too few where the optimizer drops each as soon as it is there."""
    return elements(most_alive(evidence, Category.GRADIENTS))


def arithmetic(evidence: Evidence, category: Category) -> str:
    """``2 x 109,483,778 x 4 B = 835.30 MiB``, where a category is nearly a multiple of the parameters; else its bytes.

    Nearly is to a hundredth and not more than there is: step counts and constants of quantisation come on top.
    """
    held = evidence.most_held[category]
    count = parameters_of(evidence) if category is Category.PARAMETERS else trained_of(evidence)
    blocks = most_alive(evidence, category)
    widths = {block.bytes // prod(block.shape) for block in blocks if prod(block.shape) > 1}
    if count and len(widths) == 1:
        width = widths.pop()
        times = held // (count * width)
        if held * 99 <= times * count * width * 100:
            factor = f"{times} x " if times > 1 else ""
            return f"{factor}{count:,} x {width} B = {format_bytes(held)}"
    return format_bytes(held)


def static_in_words(evidence: Evidence) -> str:
    """``parameters 417.65 MiB (..), gradients .., optimizer state ..``: only those that there are."""
    parts = [(category, arithmetic(evidence, category)) for category in STATIC if evidence.most_held[category]]
    return ", ".join(f"{category.value.replace('_', ' ')} {words}" for category, words in parts)
