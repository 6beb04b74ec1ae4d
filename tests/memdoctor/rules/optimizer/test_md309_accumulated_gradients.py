"""MD309: fires where accumulation has all gradients wait at a peak of activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.rules import Evidence
from memdoctor.rules.optimizer.md309_accumulated_gradients import RULE

Evidences = Callable[..., Evidence]


def accumulated(recording: Any, evidence: Evidences, rest: int, levers: Any = (), **workload: Any) -> Evidence:
    """100 fp32 gradients after the first micro-batch, and ``rest`` bytes of activations in the second."""
    recording.phase(1, "backward")
    recording.birth(400, "gradients", dtype="float32", shape=(100,))
    recording.phase(1, "forward")
    recording.birth(rest)
    settings = {"gradient_accumulation_steps": 4, "batch_size": 2, **workload}
    return evidence(recording.examination(total=10**6, **settings), levers=levers)


def test_fires_with_what_waits(recording: Any, evidence: Evidences, probed_lever: Callable[..., Any]) -> None:
    finding = RULE.check(accumulated(recording, evidence, 1000, [probed_lever("accumulation", -400)]))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 400)
    assert finding.detail == (
        "from the second of 4 micro-batches on all gradients, 100 x 4 B = 400 B, wait beside the activations, 1000 B "
        "of a micro-batch of 2: accumulation makes the peak no lower than a micro-batch's own; probed: accumulation "
        "costs 400 B of what is reserved"
    )


def test_without_accumulation_it_is_quiet(recording: Any, evidence: Evidences) -> None:
    assert RULE.check(accumulated(recording, evidence, 1000, gradient_accumulation_steps=1)) is None


def test_gradients_that_are_being_made_are_not_meant(recording: Any, evidence: Evidences) -> None:
    """More of them come after the peak."""
    recording.phase(1, "forward")
    kept = recording.birth(1000)
    recording.phase(1, "backward")
    recording.birth(400, "gradients")
    recording.death(kept)
    recording.birth(400, "gradients")
    assert RULE.check(evidence(recording.examination(gradient_accumulation_steps=4))) is None


@pytest.mark.parametrize(("rest", "fires"), [(7600, True), (7601, False)])
def test_at_the_threshold(recording: Any, evidence: Evidences, rest: int, fires: bool) -> None:
    """A twentieth of 8,000 B."""
    assert (RULE.check(accumulated(recording, evidence, rest)) is not None) == fires
