"""MD205: fires on the probe's note of trained parameters without gradient, under reentrant checkpointing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from memdoctor.probes.notes import training_notes
from memdoctor.rules.activations.md205_reentrant_without_gradient import RULE

REENTRANT = {"gradient_checkpointing": True, "use_reentrant": True}


def noted(examination: Any, without_gradient: tuple[str, ...]) -> Any:
    """The examination with what the probe says of it."""
    notes = tuple(training_notes(examination.workload, torch.nn.Linear(2, 2), without_gradient))
    return replace(examination, provenance=replace(examination.provenance, notes=notes))


def test_fires_on_what_the_probe_says(holding: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(noted(holding({"activations": 1}, **REENTRANT), ("weight",))))
    assert finding is not None
    assert finding.severity == "warning"
    assert "1 of 2 trained tensors get no gradient and are not trained, first weight" in finding.detail


@pytest.mark.parametrize("missing", [(), ("weight",)])
def test_one_tensor_without_gradient_is_enough(holding: Any, evidence: Any, missing: tuple[str, ...]) -> None:
    finding = RULE.check(evidence(noted(holding({"activations": 1}, **REENTRANT), missing)))
    assert (finding is not None) == bool(missing)


def test_other_checkpointing_is_not_to_blame(holding: Any, evidence: Any) -> None:
    examined = noted(holding({"activations": 1}, gradient_checkpointing=True), ("weight",))
    assert RULE.check(evidence(examined)) is None
