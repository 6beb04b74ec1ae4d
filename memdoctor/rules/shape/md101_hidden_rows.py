"""MD101: more rows reach the encoder than the batch size says."""

from __future__ import annotations

from math import prod

from memdoctor.records import Finding, Task
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import left, lookups, presses, shaped
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_MULTIPLE = Threshold(
    "rows a sample", 2, "rows of the encoder for one sample of the batch",
    "ours: two choices, two passages or two views are the least that anybody trains with",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """Counts rows in the shapes that the word embedding gave, not in the batch size that was asked for."""
    workload = evidence.workload
    calls = lookups(evidence)
    if workload.task is Task.SEQ2SEQ_LM:
        calls = calls[:1]  # the decoder may look up in the same module
    rows = sum(_rows(shape, workload.seq_length) for shape in calls)
    if rows < LEAST_MULTIPLE.value * workload.batch_size:
        return None
    inside = rows // workload.batch_size
    activations = evidence.breakdown.activations
    passes = f"{len(calls)} calls of the model, " if len(calls) > 1 else ""
    tokens = calls[0][-2] if len(calls[0]) > 2 else workload.seq_length
    return RULE.finding(
        "warning" if presses(evidence) else "info",
        f"a batch of {workload.batch_size} is {rows} rows x {tokens} tokens in the encoder: {passes}"
        f"its word embedding gave {' and '.join(dict.fromkeys(map(shaped, calls)))}; activations are those of "
        f"{inside} times the batch size, {format_bytes(activations)} at the peak",
        {
            "batch_size": workload.batch_size, "rows": rows, "tokens": tokens, "passes": len(calls),
            "activations_bytes": activations,
        },
        at_stake_bytes=activations - activations // inside,
        remedies=left(evidence, RULE.remedies),
    )  # fmt: skip


def _rows(shape: tuple[int, ...], length: int) -> int:
    if len(shape) > 2:
        return prod(shape[:-2])
    return max(shape[0] // length, 1)  # all tokens in one row, without padding


RULE = Rule(
    id="MD101",
    title="More rows reach the encoder than the batch size says",
    why=(
        "Memory is that of the rows that run through the encoder. A sample of multiple choice is one row a choice, a "
        "question with passages one row a passage, a contrastive pair two; the batch size counts samples, and says "
        "nothing of it."
    ),
    needs=(
        Need(
            "the lookup in the word embedding",
            lambda evidence: (
                None
                if lookups(evidence)
                else "the model looks nothing up in an embedding: the rows of its encoder are not known"
            ),
        ),
    ),
    thresholds=(LEAST_MULTIPLE,),
    remedies=(
        Remedy("a smaller per-device batch with more gradient accumulation", "time", "batch", accumulates=True),
        Remedy("activation checkpointing", "time", "checkpointing"),
        Remedy("fewer choices, passages or views in a sample", "task"),
    ),
    check=check,
)
