"""MD502: the batch of evaluation is the peak."""

from __future__ import annotations

from memdoctor.records import Category, Finding, PhaseName
from memdoctor.rules.evaluation.gathered import gathered_of
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.instants import blocks_at_peak_of, ran_out_in
from memdoctor.rules.needs import EVALUATION
from memdoctor.rules.rule import Remedy, Rule
from memdoctor.units import format_bytes

_LASTING = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATE, Category.WORKSPACE)


def check(evidence: Evidence) -> Finding | None:
    """The peak is in evaluation, and one batch's own tensors hold more of it than gathered predictions do."""
    if evidence.peak.phase != PhaseName.EVALUATION:
        return None
    gathered = gathered_of(evidence)
    gathers = gathered.at_peak_bytes if gathered else 0
    alive = blocks_at_peak_of(evidence, PhaseName.EVALUATION)
    batch = sum(block.bytes for block in alive if block.category not in _LASTING) - gathers
    if batch <= gathers:
        return None
    training = max(use.peak_allocated_bytes for use in evidence.phases if use.name != PhaseName.EVALUATION)
    rows, trained = evidence.workload.eval_batch_size, evidence.workload.batch_size
    error = ran_out_in(evidence, PhaseName.EVALUATION) and training <= evidence.limit_bytes
    return RULE.finding(
        "error" if error else "info" if evidence.fits else "warning",
        f"evaluation takes {format_bytes(evidence.peak.allocated_bytes)}, training {format_bytes(training)}: a batch "
        f"of {rows} x {evidence.workload.seq_length} holds {format_bytes(batch)} on its way forward (training has "
        f"batches of {trained}), predictions gathered so far {format_bytes(gathers)}",
        {"batch_bytes": batch, "gathered_bytes": gathers, "training_bytes": training, "eval_batch_size": rows},
        at_stake_bytes=batch,
    )


RULE = Rule(
    id="MD502",
    title="The batch of evaluation is the peak",
    why=(
        "Evaluation keeps nothing for backward, but the optimizer's state is still there, and a layer's largest "
        "tensors grow with the evaluation batch, which is a setting of its own. auto_find_batch_size does not adjust "
        "it."
    ),
    needs=(EVALUATION,),
    remedies=(Remedy("a smaller per_device_eval_batch_size: predictions are the same", "time"),),
    check=check,
)
