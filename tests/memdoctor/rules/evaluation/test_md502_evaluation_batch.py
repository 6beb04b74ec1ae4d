"""MD502: fires where a batch of evaluation holds more of the peak than gathered predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import Examination
from memdoctor.rules import Evidence
from memdoctor.rules.evaluation.md502_evaluation_batch import RULE

Evaluated = Callable[..., Examination]
Evidences = Callable[..., Evidence]


def test_fires_with_both_parts(evaluated: Evaluated, evidence: Evidences) -> None:
    """In the last batch's forward 4 samples of 8 B are there."""
    finding = RULE.check(evidence(evaluated((2,), training=200, own=500, batch_size=1)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 500)
    assert finding.detail == (
        "evaluation takes 1.50 KiB, training 1.17 KiB: a batch of 2 x 8 holds 500 B on its way forward (training has "
        "batches of 1), predictions gathered so far 32 B"
    )


def test_where_training_is_the_peak_it_is_quiet(evaluated: Evaluated, evidence: Evidences) -> None:
    assert RULE.check(evidence(evaluated((2,), training=600, own=500))) is None


@pytest.mark.parametrize(("own", "fires"), [(801, True), (800, False)])
def test_at_the_threshold(recording: Any, evidence: Evidences, own: int, fires: bool) -> None:
    """Gathered are 4 samples of 200 B; the batch has to hold more."""
    recording.phase(1, "backward")
    recording.birth(1, "gradients")
    recording.phase(1, "evaluation")
    recording.birth(800, "temporaries", op="aten.cat.default", dtype="float32", shape=(4, 50))
    recording.birth(own, "temporaries", module="net")
    examination = recording.examination(evaluate=True, eval_batch_size=2)
    assert (RULE.check(evidence(examination)) is not None) == fires


@pytest.mark.parametrize(("limit", "severity"), [(1201, "error"), (1200, "warning")])
def test_an_error_where_training_would_fit(
    evaluated: Evaluated, evidence: Evidences, limit: int, severity: str
) -> None:
    examination = evaluated((2,), training=200, own=500, stops=True, total=limit + 1000)
    finding = RULE.check(evidence(examination))
    assert finding is not None
    assert finding.severity == severity
