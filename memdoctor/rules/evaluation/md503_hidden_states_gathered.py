"""MD503: hidden states are gathered with the predictions."""

from __future__ import annotations

from memdoctor.records import Finding, PhaseName
from memdoctor.rules.evaluation.gathered import gathered_of
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.instants import ran_out_in
from memdoctor.rules.needs import EVALUATION, MODEL_CONFIG
from memdoctor.rules.reading import left
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of what is gathered", 0.5, "of the predictions", "ours: hidden states are then most of what is kept"
)
_RANK = 3  # samples x tokens x hidden size


def check(evidence: Evidence) -> Finding | None:
    """Tensors of samples x tokens x hidden size are most of what evaluation keeps."""
    gathered = gathered_of(evidence)
    if gathered is None or not evidence.workload.output_hidden_states:
        return None
    config = evidence.config
    size = next(config[name] for name in ("hidden_size", "d_model", "dim") if name in config)
    hidden = [block for block in gathered.final if len(block.shape) == _RANK and block.shape[-1] == size]
    held = sum(block.bytes for block in hidden)
    if not hidden or held < LEAST_SHARE.value * gathered.total_bytes:
        return None
    samples = max(block.shape[0] for block in hidden)
    rest = gathered.total_bytes - held
    in_peak = evidence.peak.phase == PhaseName.EVALUATION
    error = ran_out_in(evidence, PhaseName.EVALUATION) and gathered.rest_bytes <= evidence.limit_bytes
    return RULE.finding(
        "error" if error else "warning" if in_peak else "info",
        f"{len(hidden)} hidden states of {samples:,} samples x {hidden[0].shape[1]} x {size} are kept with the "
        f"predictions, {format_bytes(held)}; everything else that is gathered takes {format_bytes(rest)}",
        {"hidden_states_bytes": held, "gathered_bytes": gathered.total_bytes, "tensors": len(hidden)},
        at_stake_bytes=held,
        remedies=left(evidence, RULE.remedies),
    )


RULE = Rule(
    id="MD503",
    title="Hidden states are gathered with the predictions",
    why=(
        "With output_hidden_states the model returns the output of every layer, and the Trainer keeps whatever the "
        "model returns beside the loss: layers x tokens x hidden size for each sample, where a metric wants a few "
        "logits."
    ),
    needs=(EVALUATION, MODEL_CONFIG),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("output_hidden_states=False in evaluation, or ignore_keys=['hidden_states']", "none"),
        Remedy("eval_accumulation_steps=1: they move to the host", "time", "eval_accumulation"),
    ),
    check=check,
)
