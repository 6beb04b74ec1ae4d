"""MD209: layers that are frozen from the input on are checkpointed, where they could keep nothing."""

from __future__ import annotations

import re

from memdoctor.records import Block, Category, Finding, PhaseName
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.instants import born_in
from memdoctor.rules.reading import effect, most_alive
from memdoctor.rules.rule import Remedy, Rule
from memdoctor.units import format_bytes

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
    through = any(_layer(block) in range(frozen) for block in born_in(evidence, PhaseName.BACKWARD))
    kept = _kept_below(evidence, frozen)
    acts = (
        "with checkpointing backward runs through them all the same, since transformers makes its input require a "
        f"gradient: each is computed again, and what they keep for it is {format_bytes(kept)}"
        if through
        else "they keep no activations, checkpointed or not: checkpointing acts on "
        f"{layers - frozen} of {layers} layers"
    )
    return RULE.finding(
        "warning" if through else "info",
        f"the first {frozen} of {layers} layers get no gradient; {acts}{'; ' if probed else ''}{probed}",
        {"frozen_layers": frozen, "layers": layers, "backward_runs_through": through, "kept_bytes": kept},
        remedies=RULE.remedies if through else RULE.remedies[1:],
    )


def _layer(block: Block) -> int | None:
    found = _LAYER.match(block.module)
    return int(found["number"]) if found is not None else None


def _kept_below(evidence: Evidence, frozen: int) -> int:
    """The most activations that the frozen layers hold at one time."""
    kept = most_alive(
        evidence.examination.timeline,
        lambda block: block.category is Category.ACTIVATIONS and _layer(block) in range(frozen),
    )
    return sum(block.bytes for block in kept)


RULE = Rule(
    id="MD209",
    title="Frozen layers are checkpointed, which saves nothing there",
    why=(
        "Layers that are frozen from the embeddings on are never run backward: autograd keeps nothing of them. A "
        "checkpoint around them has nothing to drop; only the layers that are trained have. Yet where transformers is "
        "asked to checkpoint, it makes the embeddings' output require a gradient (enable_input_require_grads), and "
        "backward then runs through the frozen layers too."
    ),
    remedies=(
        Remedy("model.disable_input_require_grads() once checkpointing is on, with use_reentrant=False", "none"),
        Remedy("nothing, where it is checkpointed for the trained layers' sake", "none"),
        Remedy("checkpointing switched off, where the trained layers are few", "none", "checkpointing"),
    ),
    check=check,
)
