"""MD504: whole logits are kept where an argmax would do."""

from __future__ import annotations

from math import prod

from memdoctor.records import Block, Finding, PhaseName, Task
from memdoctor.rules.evaluation.gathered import Gathered, gathered_of
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import EVALUATION
from memdoctor.rules.reading import left
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of evaluation's peak", 0.05, "of what is allocated at the peak of evaluation",
    "ours: below a twentieth, predictions are not what decides whether evaluation fits",
)  # fmt: skip
_PER_TOKEN = (Task.TOKEN_CLASSIFICATION, Task.MASKED_LM, Task.CAUSAL_LM, Task.SEQ2SEQ_LM)
_RANK = 3  # samples x tokens x labels
_INDEX_BYTES = 8  # argmax gives int64


def check(evidence: Evidence) -> Finding | None:
    """Each token's logits over all labels are kept, and they hold a share of evaluation's peak."""
    gathered = gathered_of(evidence)
    logits = _logits(evidence, gathered) if gathered else None
    peak = evidence.phase_peak(PhaseName.EVALUATION)
    if logits is None or logits.bytes < LEAST_SHARE.value * peak:
        return None
    *rows, labels = logits.shape
    chosen = prod(rows) * _INDEX_BYTES
    if chosen >= logits.bytes:
        return None
    shape = f"{rows[0]:,} samples x {rows[1]} tokens"
    return RULE.finding(
        "warning" if evidence.peak.phase == PhaseName.EVALUATION else "info",
        f"{shape} x {labels:,} logits x {logits.bytes // prod(logits.shape)} B = {format_bytes(logits.bytes)} are "
        f"kept; the index of the largest is {shape} x {_INDEX_BYTES} B = {format_bytes(chosen)}, "
        f"{logits.bytes / chosen:,.0f} times less",
        {"logits_bytes": logits.bytes, "argmax_bytes": chosen, "labels": labels},
        at_stake_bytes=logits.bytes - chosen,
        remedies=left(evidence, RULE.remedies),
    )


def _logits(evidence: Evidence, gathered: Gathered) -> Block | None:
    """The largest tensor of samples x tokens x labels that is no hidden state."""
    if evidence.workload.task not in _PER_TOKEN:
        return None
    by_label = [block for block in gathered.final if len(block.shape) == _RANK and block.dtype.startswith(_FLOATS)]
    if evidence.workload.task is Task.TOKEN_CLASSIFICATION:
        by_label = [block for block in by_label if block.shape[-1] == evidence.workload.num_labels]
    elif "vocab_size" in evidence.config:
        by_label = [block for block in by_label if block.shape[-1] == evidence.config["vocab_size"]]
    return max(by_label, key=lambda block: block.bytes, default=None)


_FLOATS = ("float", "bfloat")

RULE = Rule(
    id="MD504",
    title="Whole logits are kept where an argmax would do",
    why=(
        "Metrics such as accuracy, F1 and seqeval use the label with the largest logit. The Trainer keeps all logits, "
        "as many times more as there are labels: with a masked language model, the whole vocabulary for every token."
    ),
    needs=(EVALUATION,),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(dim=-1)", "none"),
        Remedy("prediction_loss_only=True where only the loss is wanted", "none"),
        Remedy("eval_accumulation_steps=1: they move to the host, whole", "time", "eval_accumulation"),
    ),
    check=check,
)
