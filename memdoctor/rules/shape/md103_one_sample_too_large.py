"""MD103: not even one sample fits."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.records import Category, Completed, Examination, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import BATCH_OF_ONE
from memdoctor.rules.reading import left, others_decide, percent, varied
from memdoctor.rules.rule import Remedy, Rule
from memdoctor.units import format_bytes


def check(evidence: Evidence) -> Finding | None:
    """Batch 1, the target itself or a probe of it, runs out of memory."""
    one = _one(evidence)
    if evidence.fits or one is None or isinstance(one.outcome, Completed):
        return None
    limit, static, needs = evidence.limit_bytes, evidence.static_bytes, peak_of(one).reserved_bytes
    held = evidence.most_held
    steps = evidence.workload.gradient_accumulation_steps
    spent = f"; accumulation of {steps} cannot make a batch smaller than 1" if steps > 1 else ""
    others = others_decide(evidence)
    theirs = f"; {format_bytes(evidence.device.other_processes_bytes)} of the card are held by others" if others else ""
    return RULE.finding(
        "warning" if others else "error",
        f"batch 1 needs {format_bytes(needs)} of the {format_bytes(limit)} that PyTorch can reserve; parameters "
        f"{format_bytes(held[Category.PARAMETERS])} + gradients {format_bytes(held[Category.GRADIENTS])} + optimizer "
        f"state {format_bytes(held[Category.OPTIMIZER_STATE])} = {format_bytes(static)}, {percent(static, limit)} of "
        f"that, are there at any batch{spent}{theirs}",
        {"batch_1_reserved_bytes": needs, "limit_bytes": limit, "static_bytes": static},
        at_stake_bytes=static,
        remedies=left(evidence, RULE.remedies),
    )


def _one(evidence: Evidence) -> Examination | None:
    return evidence.examination if evidence.workload.batch_size == 1 else varied(evidence, "batch_size").get(1)


RULE = Rule(
    id="MD103",
    title="Not even one sample fits: the batch is not the problem",
    why=(
        "Batch and accumulation can only lower what grows with the batch. Where one sample does not fit, the cause is "
        "the static state of the model, its length, or what else is loaded."
    ),
    needs=(BATCH_OF_ONE,),
    remedies=(
        Remedy("activation checkpointing, where activations hold the peak of batch 1", "time", "checkpointing"),
        Remedy("an optimizer with less state: 8-bit AdamW, Adafactor", "numerics", "8-bit optimizer"),
        Remedy("LoRA or frozen layers, which need neither gradients nor state", "task", "LoRA"),
        Remedy("a shorter sequence", "task", "length"),
        Remedy("a smaller model, or a card with more memory", "task"),
    ),
    check=check,
)
