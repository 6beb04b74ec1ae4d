"""MD501: fires where gathered predictions hold a share of evaluation's peak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import Examination, NotChecked
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.evaluation.md501_predictions_on_the_gpu import RULE

Evaluated = Callable[..., Examination]
Evidences = Callable[..., Evidence]


def test_fires_with_what_a_sample_adds(
    evaluated: Evaluated, evidence: Evidences, probed_lever: Callable[..., Any]
) -> None:
    """A sample is 5 x 10 x 4 B = 200 B; at the peak 4 and 6 of them. (5,000 - 1,000) / 400 B: 10 samples fit."""
    levers = [probed_lever("eval_accumulation", 1500)]
    finding = RULE.check(evidence(evaluated((5, 10), total=6000), levers=levers))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 2000)
    assert finding.detail == (
        "6 samples x 5x10 x 4 B = 1.17 KiB of predictions stay on the GPU, and nearly as much again while the next "
        "batch is joined to them: 1.95 KiB of evaluation's 2.93 KiB (PyTorch reserves 2.93 KiB for it). A sample adds "
        "200 B whatever the batch, so this card takes at most 10 samples; probed: eval_accumulation saves 1.46 KiB of "
        "what is reserved"
    )


def test_alike_outputs_are_told_together(evaluated: Evaluated, evidence: Evidences) -> None:
    finding = RULE.check(evidence(evaluated((7,), (7,), (2,))))
    assert finding is not None
    assert finding.detail.startswith("2 x 6 samples x 7 x 4 B = 336 B of predictions")
    assert finding.evidence["per_sample_bytes"] == 7 * 4 + 7 * 4 + 2 * 4


def test_where_training_is_the_peak_it_is_worth_knowing(evaluated: Evaluated, evidence: Evidences) -> None:
    finding = RULE.check(evidence(evaluated((5, 10), training=5000)))
    assert finding is not None
    assert finding.severity == "info"
    assert "reserves" not in finding.detail


def test_what_moves_to_the_host_is_not_meant(evaluated: Evaluated, evidence: Evidences) -> None:
    assert RULE.check(evidence(evaluated((5, 10), eval_accumulation_steps=1))) is None


def test_a_concatenation_of_the_models_own_is_not_meant(recording: Any, evidence: Evidences) -> None:
    recording.phase(1, "evaluation")
    recording.birth(400, "temporaries", op="aten.cat.default", dtype="float32", shape=(2, 50))
    recording.birth(400, "temporaries", op="aten.cat.default", dtype="float32", shape=(10, 10), module="net")
    assert RULE.check(evidence(recording.examination(evaluate=True, eval_batch_size=2))) is None


@pytest.mark.parametrize(("lasting", "fires"), [(520, True), (521, False)])
def test_at_the_threshold(evaluated: Evaluated, evidence: Evidences, lasting: int, fires: bool) -> None:
    """4 and 6 samples of 2 x 4 B are 80 B, a twentieth of 1,600."""
    assert (RULE.check(evidence(evaluated((2,), lasting=lasting))) is not None) == fires


@pytest.mark.parametrize(("limit", "severity"), [(1000, "error"), (999, "warning")])
def test_an_error_where_the_rest_would_fit(
    evaluated: Evaluated, evidence: Evidences, limit: int, severity: str
) -> None:
    finding = RULE.check(evidence(evaluated((5, 10), stops=True, total=limit + 1000)))
    assert finding is not None
    assert finding.severity == severity


def test_without_evaluation_it_is_not_checked(two_steps: Any, evidence: Evidences) -> None:
    checked = check_all([RULE], evidence(two_steps))
    assert checked.not_checked == (NotChecked(id=RULE.id, title=RULE.title, why="no evaluation was probed: --eval"),)
