"""MD303: the lists of temporaries that foreach kernels make are the peak."""

from __future__ import annotations

from collections import Counter

from memdoctor.records import Category, Finding, PhaseName, Severity
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.instants import blocks_at_peak_of
from memdoctor.rules.lever_effects import probed_effects
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the peak", 0.05, "of what is allocated at the peak",
    "ours: below a twentieth, no setting of the optimizer's kernels is what decides whether a step fits",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """The peak is in the optimizer step, and outputs of ``torch._foreach_*`` hold a share of it."""
    peak = evidence.peak
    if peak.phase != PhaseName.OPTIMIZER:
        return None
    lists = [
        block
        for block in blocks_at_peak_of(evidence, PhaseName.OPTIMIZER)
        if block.category is Category.TEMPORARIES and "_foreach_" in block.op
    ]
    held = sum(block.bytes for block in lists)
    if not lists or held < LEAST_SHARE.value * peak.allocated_bytes:
        return None
    work = evidence.phase_peak(PhaseName.FORWARD, PhaseName.BACKWARD)
    without = max(work, peak.allocated_bytes - held)
    severity: Severity = "error" if not evidence.fits and without <= evidence.limit_bytes else "warning"
    op, _ = Counter(block.op for block in lists).most_common(1)[0]
    return RULE.finding(
        severity,
        f"{len(lists)} outputs of {op.removeprefix('aten.').partition('.')[0]} hold {format_bytes(held)} at the peak, "
        f"{format_bytes(peak.allocated_bytes)} in the optimizer step; without them the step takes "
        f"{format_bytes(peak.allocated_bytes - held)}, and forward and backward take {format_bytes(work)}"
        f"{probed_effects(evidence, 'fused optimizer')}",
        {"foreach_bytes": held, "tensors": len(lists), "without_bytes": without},
        at_stake_bytes=peak.allocated_bytes - without,
        remedies=RULE.remedies if evidence.workload.optimizer == "adamw_torch" else RULE.remedies[1:],
    )


RULE = Rule(
    id="MD303",
    title="Lists of foreach temporaries make the optimizer step the peak",
    why=(
        "The foreach implementation (adamw_torch and its kin) computes with lists of all tensors of a parameter group "
        "at once, so each intermediate result is as large as the group. A fused kernel has none of them."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy('optim="adamw_torch_fused"', "none", "fused optimizer"),
        Remedy("foreach=False where the optimizer is your own: one tensor after the other", "time"),
    ),
    check=check,
)
