"""MD108: gradients are accumulated, which lowers no step's peak."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import left, presses
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_STEPS = Threshold(
    "gradient_accumulation_steps", 2, "micro-batches an optimizer step",
    "transformers.TrainingArguments: 1 is no accumulation",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """Says what accumulation adds: the inputs of all micro-batches, and gradients that outlive each of them."""
    workload = evidence.workload
    steps, batch, gpus = workload.gradient_accumulation_steps, workload.batch_size, workload.world_size
    if steps < LEAST_STEPS.value:
        return None
    gradients = evidence.most_held[Category.GRADIENTS]
    without = evidence.changed({"gradient_accumulation_steps": 1})
    added = evidence.peak.reserved_bytes - peak_of(without).reserved_bytes if without else None
    return RULE.finding(
        "warning" if presses(evidence) else "info",
        f"{batch} x {steps} x {gpus} GPU{'s' if gpus > 1 else ''} is an effective batch of {batch * steps * gpus}, but "
        f"memory is that of {batch}: every micro-batch keeps activations of its own, and from the second on "
        f"{format_bytes(gradients)} of gradients persist beside them{_probed(added)}",
        {
            "effective_batch_size": batch * steps * gpus, "batch_size": batch, "gradients_bytes": gradients,
            **({} if added is None else {"added_bytes": added}),
        },
        at_stake_bytes=max(added or 0, 0),
        remedies=left(evidence, RULE.remedies),
    )  # fmt: skip


def _probed(added: int | None) -> str:
    if added is None:
        return ""
    if added == 0:
        return "; probed without it, the reserved peak is the same"
    return f"; probed without it, the reserved peak is {format_bytes(abs(added))} {'lower' if added > 0 else 'higher'}"


RULE = Rule(
    id="MD108",
    title="Gradients are accumulated, which lowers no step's peak",
    why=(
        "The effective batch is per-device batch x accumulation x GPUs, but memory depends on the per-device batch "
        "alone. More accumulation saves nothing; it only makes up for a smaller per-device batch."
    ),
    thresholds=(LEAST_STEPS,),
    remedies=(
        Remedy(
            "a smaller per-device batch, with accumulation raised by the same factor", "time", "batch", accumulates=True
        ),
        Remedy("activation checkpointing", "time", "checkpointing"),
    ),
    check=check,
)
