"""MD806: fires where the first batch fits and the optimizer's state does not fit beside the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import RanOut
from memdoctor.rules import Evidence
from memdoctor.rules.growth.md806_second_step import RULE

Evidences = Callable[..., Evidence]
# Events of the run below that could not be served.
FORWARD, STATE, SECOND_FORWARD, EVALUATION = 1, 3, 4, 5


def stopped(recording: Any, evidence: Evidences, at: int | None, limit: int = 2000) -> Evidence:
    """1,000 B of parameters, 1,000 of activations in each step, 500 of state made between them."""
    recording.phase(0, "setup")
    recording.birth(1000, "parameters")
    recording.phase(1, "forward")
    kept = recording.birth(1000)
    recording.phase(1, "backward")
    recording.death(kept)
    recording.phase(1, "optimizer")
    recording.birth(500, "optimizer_state")
    recording.phase(2, "forward")
    recording.birth(1000)
    recording.phase(2, "evaluation")
    recording.birth(1)
    outcome = None if at is None else RanOut(requested_bytes=1, free_bytes=0, event=at)
    return evidence(recording.examination(total=limit + 1000, outcome=outcome))


def test_fires_with_what_the_first_step_takes(recording: Any, evidence: Evidences) -> None:
    finding = RULE.check(stopped(recording, evidence, SECOND_FORWARD))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 500)
    assert finding.detail == (
        "forward and backward of the first step take 1.95 KiB of the 1.95 KiB that PyTorch can have; then the "
        "optimizer makes its state, 500 B, which stays, and the run stops in forward of step 2. That is no leak: every "
        "later step is like the second"
    )


@pytest.mark.parametrize(
    ("at", "fires"), [(None, False), (FORWARD, False), (STATE, True), (SECOND_FORWARD, True), (EVALUATION, False)]
)
def test_where_it_stops_decides(recording: Any, evidence: Evidences, at: int | None, fires: bool) -> None:
    assert (RULE.check(stopped(recording, evidence, at)) is not None) == fires


@pytest.mark.parametrize(("limit", "fires"), [(2000, True), (1999, False)])
def test_at_the_threshold(recording: Any, evidence: Evidences, limit: int, fires: bool) -> None:
    """The first forward takes 2,000 B."""
    assert (RULE.check(stopped(recording, evidence, STATE, limit)) is not None) == fires
