"""MD209: layers that are frozen from the input on are checkpointed, and keep nothing either way."""

from __future__ import annotations

import re

from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import effect
from memdoctor.rules.rule import Remedy, Rule

_LAYER = re.compile(r"^(?P<stack>.*?)\.(?P<number>\d+)(?:\.|$)")


def frozen_prefix(evidence: Evidence) -> tuple[int, int]:
    """How many layers come before the first that gets a gradient, and how many there are.

    Modules are known by name: ``encoder.layer.3``. A layer is frozen where no gradient is born in it.
    """
    layers: set[int] = set()
    trained: set[int] = set()
    embedded = False
    for block in evidence.examination.timeline.blocks:
        found = _LAYER.match(block.module)
        if found is not None:
            layers.add(int(found["number"]))
            if block.category is Category.GRADIENTS:
                trained.add(int(found["number"]))
        elif block.category is Category.GRADIENTS and "embed" in block.module:
            embedded = True
    return 0 if embedded else min(trained, default=0), len(layers)


def check(evidence: Evidence) -> Finding | None:
    """Checkpointing is on, and the first layers need no gradient, so they keep nothing for backward."""
    workload = evidence.workload
    if not workload.gradient_checkpointing or not workload.freeze:
        return None
    frozen, layers = frozen_prefix(evidence)
    if frozen < 1:
        return None
    probed = effect(evidence, evidence.lever("checkpointing"))
    return RULE.finding(
        "info",
        f"the first {frozen} of {layers} layers get no gradient and keep no activations, checkpointed or not: "
        f"checkpointing acts on {layers - frozen} of {layers} layers{'; ' if probed else ''}{probed}",
        {"frozen_layers": frozen, "layers": layers},
    )


RULE = Rule(
    id="MD209",
    title="Frozen layers are checkpointed, which saves nothing there",
    why=(
        "Layers that are frozen from the embeddings on are never run backward: autograd keeps nothing of them. A "
        "checkpoint around them has nothing to drop; only the layers that are trained have."
    ),
    remedies=(
        Remedy("nothing, where it is checkpointed for the trained layers' sake", "none"),
        Remedy("checkpointing switched off, where the trained layers are few", "none", "checkpointing"),
    ),
    check=check,
)
