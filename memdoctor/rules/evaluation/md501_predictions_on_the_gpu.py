"""MD501: the predictions of all samples are gathered on the GPU."""

from __future__ import annotations

from memdoctor.records import Finding, PhaseName, Severity
from memdoctor.rules.evaluation.gathered import gathered_of
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.instants import ran_out_in
from memdoctor.rules.lever_effects import probed_effects
from memdoctor.rules.needs import EVALUATION
from memdoctor.rules.reading import left
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of evaluation's peak", 0.05, "of what is allocated at the peak of evaluation",
    "ours: below a twentieth, predictions are not what decides whether evaluation fits",
)  # fmt: skip
_COPIES = 2  # nested_concat makes the longer tensor while the shorter one is still there


def check(evidence: Evidence) -> Finding | None:
    """Nothing moves predictions to the host, and they hold a share of evaluation's peak."""
    gathered = gathered_of(evidence)
    if gathered is None or evidence.workload.eval_accumulation_steps is not None:
        return None
    peak = evidence.phase_peak(PhaseName.EVALUATION)
    if gathered.at_peak_bytes < LEAST_SHARE.value * peak:
        return None
    room = max(evidence.limit_bytes - gathered.rest_bytes, 0) // (_COPIES * gathered.per_sample_bytes)
    in_peak = evidence.peak.phase == PhaseName.EVALUATION
    severity: Severity = "warning" if in_peak else "info"
    if ran_out_in(evidence, PhaseName.EVALUATION) and gathered.rest_bytes <= evidence.limit_bytes:
        severity = "error"
    reserved = f" (PyTorch reserves {format_bytes(evidence.peak.reserved_bytes)} for it)" if in_peak else ""
    return RULE.finding(
        severity,
        f"{gathered.arithmetic} of predictions stay on the GPU, and nearly as much again while the next batch is "
        f"joined to them: {format_bytes(gathered.at_peak_bytes)} of evaluation's {format_bytes(peak)}{reserved}. A "
        f"sample adds {format_bytes(gathered.per_sample_bytes)} whatever the batch, so this card takes at most "
        f"{room:,} samples{probed_effects(evidence, 'eval_accumulation')}",
        {
            "gathered_bytes": gathered.total_bytes, "at_peak_bytes": gathered.at_peak_bytes,
            "per_sample_bytes": gathered.per_sample_bytes, "samples_that_fit": room,
        },
        at_stake_bytes=gathered.at_peak_bytes,
        remedies=left(evidence, RULE.remedies),
    )  # fmt: skip


RULE = Rule(
    id="MD501",
    title="Evaluation gathers the predictions of all samples on the GPU",
    why=(
        "Without eval_accumulation_steps the Trainer keeps every batch's predictions on the GPU until the last one, "
        "and joins each to a new, longer tensor while the old one is there. The request that fails then does not "
        "depend on the batch size, and comes at the same part of the evaluation set every time."
    ),
    needs=(EVALUATION,),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("eval_accumulation_steps=1 (or a few): predictions move to the host", "time", "eval_accumulation"),
        Remedy("prediction_loss_only=True where only the loss is wanted", "none"),
        Remedy("preprocess_logits_for_metrics that keeps what the metric needs, e.g. the argmax", "none"),
    ),
    check=check,
)
