"""MD505: ``eval_accumulation_steps`` is more than evaluation has batches."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evaluation.gathered import gathered_of
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import EVALUATION
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

BATCHES = Threshold(
    "steps against batches", 1, "times the number of batches",
    "Trainer.evaluation_loop of transformers: predictions move after each eval_accumulation_steps-th batch, and in any "
    "case after the last",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """There are no more batches than it takes to move predictions once, which the end does anyhow."""
    workload = evidence.workload
    steps = workload.eval_accumulation_steps
    batches = -(-workload.eval_samples // workload.eval_batch_size)
    if steps is None or workload.prediction_loss_only or steps < BATCHES.value * batches:
        return None
    gathered = gathered_of(evidence)
    held = gathered.at_peak_bytes if gathered else 0
    return RULE.finding(
        "warning" if held else "info",
        f"{workload.eval_samples:,} samples in batches of {workload.eval_batch_size} are {batches:,} batches; "
        f"predictions would move after every {steps:,}: they all stay, {format_bytes(held)} at evaluation's peak",
        {"eval_accumulation_steps": steps, "batches": batches, "gathered_bytes": held},
        at_stake_bytes=held,
    )


RULE = Rule(
    id="MD505",
    title="eval_accumulation_steps is never reached",
    why=(
        "The setting counts batches of evaluation. Where there are no more of them than it says, nothing moves to the "
        "host before the end, and the setting does nothing."
    ),
    needs=(EVALUATION,),
    thresholds=(BATCHES,),
    remedies=(Remedy("eval_accumulation_steps=1, or a few", "time"),),
    check=check,
)
