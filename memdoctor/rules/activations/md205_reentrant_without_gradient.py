"""MD205: reentrant checkpointing cuts trained parameters off from their gradient."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Remedy, Rule

SIGN = "get no gradient and are not trained"  # as memdoctor.probes.notes says it of the trained parameters


def check(evidence: Evidence) -> Finding | None:
    """The probe saw trained parameters without a gradient, under reentrant checkpointing."""
    workload = evidence.workload
    if not (workload.gradient_checkpointing and workload.use_reentrant):
        return None
    said = next((note for note in evidence.examination.provenance.notes if SIGN in note), None)
    if said is None:
        return None
    return RULE.finding(
        "error" if not evidence.fits else "warning",
        f"{said}; the memory shown is that of a training that does not train them",
        {"use_reentrant": True, "lora_rank": workload.lora_rank, "freezes": bool(workload.freeze)},
    )


RULE = Rule(
    id="MD205",
    title="Reentrant checkpointing cuts off trained parameters",
    why=(
        "A reentrant checkpoint passes gradients on only where one of its inputs requires one. Behind frozen "
        "embeddings, or with LoRA, none does: the first layers get no gradient, memory looks small, and nothing there "
        "is trained."
    ),
    remedies=(
        Remedy('gradient_checkpointing_kwargs={"use_reentrant": False}', "none"),
        Remedy("model.enable_input_require_grads()", "none"),
    ),
    check=check,
)
