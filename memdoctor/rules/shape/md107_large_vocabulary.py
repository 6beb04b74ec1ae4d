"""MD107: most of the model is its word embedding."""

from __future__ import annotations

from math import prod

from memdoctor.records import Block, Category, Finding
from memdoctor.rules.evidence import STATIC, Evidence
from memdoctor.rules.needs import MODEL_CONFIG
from memdoctor.rules.reading import left, most_alive, percent, presses
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the parameters", 0.4, "of the parameters' bytes",
    "ours: between BERT-base, whose 30,522 x 768 are 21 % of it, and XLM-R-large, whose 250,002 x 1024 are 46 %",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """The embedding of the vocabulary holds a large share of the parameters; counts its copies in the static state."""
    vocabulary = evidence.config.get("vocab_size")
    kept = most_alive(
        evidence.examination.timeline,
        lambda block: block.category in STATIC and len(block.shape) == 2 and block.shape[0] == vocabulary,
    )
    table = next((block for block in kept if block.category is Category.PARAMETERS), None)
    parameters = evidence.most_held[Category.PARAMETERS]
    if table is None or table.bytes < LEAST_SHARE.value * parameters:
        return None
    held = sum(block.bytes for block in kept)
    rows, width = table.shape
    return RULE.finding(
        "warning" if presses(evidence) else "info",
        f"{rows:,} x {width} x {table.bytes // prod(table.shape)} B = {format_bytes(table.bytes)} of "
        f"{format_bytes(parameters)} of parameters ({percent(table.bytes, parameters)}) are the word embedding; with "
        f"{_others(kept)} it is {format_bytes(held)}, of which a batch uses only the rows of its tokens",
        {"embedding_bytes": table.bytes, "parameters_bytes": parameters, "held_bytes": held, "tensors": len(kept)},
        at_stake_bytes=held,
        remedies=left(evidence, RULE.remedies),
    )


def _others(kept: tuple[Block, ...]) -> str:
    gradients = sum(block.category is Category.GRADIENTS for block in kept)
    states = sum(block.category is Category.OPTIMIZER_STATE for block in kept)
    tables = len(kept) - gradients - states
    parts = [
        f"{tables - 1} more of its size" if tables > 1 else "",
        "its gradient" if gradients == 1 else f"{gradients} gradients" if gradients else "",
        f"{states} tensors of optimizer state" if states > 1 else "one tensor of optimizer state" if states else "",
    ]
    return " and ".join(filter(None, parts)) or "neither gradient nor state"


RULE = Rule(
    id="MD107",
    title="Most of the model is its word embedding",
    why=(
        "A multilingual vocabulary has 120,000 to 250,000 entries. Its embedding has a dense gradient and the "
        "optimizer's state for every one of them, though a batch touches a few thousand; the model's name says base, "
        "its static state does not."
    ),
    needs=(MODEL_CONFIG,),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("a frozen word embedding (--freeze '*word_embeddings*'): no gradient, no state", "task", "freezing"),
        Remedy("Adafactor, which keeps a row and a column of state for a matrix", "numerics", "Adafactor"),
        Remedy("a vocabulary cut down to the languages of the task", "task"),
    ),
    check=check,
)
