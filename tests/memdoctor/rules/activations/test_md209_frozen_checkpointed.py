"""MD209: fires where the first layers get no gradient and layers are checkpointed."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.records import Peak
from memdoctor.rules.activations.md209_frozen_checkpointed import RULE

CHECKPOINTED = {"gradient_checkpointing": True, "freeze": ("embeddings*",)}


def trained_from(recording: Any, first: int, *, layers: int = 4, embeddings: bool = False, **workload: Any) -> Any:
    recording.phase(1, "forward")
    for number in range(layers):
        recording.birth(10, module=f"bert.encoder.layer.{number}.attention")
    recording.phase(1, "backward")
    for number in range(first, layers):
        recording.birth(10, "gradients", module=f"bert.encoder.layer.{number}.output.dense")
    recording.birth(10, "gradients", module="classifier")
    if embeddings:
        recording.birth(10, "gradients", module="bert.embeddings.word_embeddings")
    return recording.examination(**{**CHECKPOINTED, **workload})


def test_fires_with_the_layers_and_the_probed_effect(recording: Any, evidence: Any, probed_lever: Any) -> None:
    examined = trained_from(recording, 3)
    peak = Peak(
        allocated_bytes=1, max_memory_allocated_bytes=1, reserved_bytes=160, device_bytes=160, phase="forward", step=1
    )
    levers = [probed_lever("checkpointing", 100, status="in use", peak=peak)]
    finding = RULE.check(evidence(examined, levers=levers))
    assert finding is not None
    assert finding.severity == "info"
    assert "the first 3 of 4 layers get no gradient; they keep no activations" in finding.detail
    assert not finding.evidence["backward_runs_through"]
    assert not any("disable_input_require_grads" in remedy for remedy in finding.remedies)
    assert finding.detail.endswith("saves 100 B of the reserved peak (160 B without it, 60 B with it)")


def test_backward_through_frozen_layers_is_a_warning(recording: Any, evidence: Any) -> None:
    """Layer 1 is computed again in backward; layers 0 to 2 kept 10 B each."""
    trained_from(recording, 3)
    recording.birth(10, "temporaries", module="bert.encoder.layer.1.output.dense")
    finding = RULE.check(evidence(recording.examination(**CHECKPOINTED)))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.evidence["kept_bytes"] == 30
    assert "backward runs through them all the same" in finding.detail
    assert finding.remedies[0].startswith("model.disable_input_require_grads()")


@pytest.mark.parametrize(("first", "fires"), [(0, False), (1, True)])
def test_at_the_threshold(recording: Any, evidence: Any, first: int, fires: bool) -> None:
    """One frozen layer is enough."""
    assert (RULE.check(evidence(trained_from(recording, first))) is not None) == fires


def test_behind_trained_embeddings_frozen_layers_keep_activations(recording: Any, evidence: Any) -> None:
    assert RULE.check(evidence(trained_from(recording, 3, embeddings=True))) is None


@pytest.mark.parametrize("change", [{"gradient_checkpointing": False}, {"freeze": ()}])
def test_it_takes_both(recording: Any, evidence: Any, change: dict[str, Any]) -> None:
    assert RULE.check(evidence(trained_from(recording, 3, **change))) is None
