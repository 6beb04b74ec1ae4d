"""MD503: fires where hidden states are most of what evaluation keeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Examination, NotChecked
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.evaluation.md503_hidden_states_gathered import RULE

Evaluated = Callable[..., Examination]
Evidences = Callable[..., Evidence]


def test_fires_with_their_number_and_the_rest(evaluated: Evaluated, evidence: Evidences) -> None:
    """Three outputs of 5 tokens x hidden size 8 and two logits: 3 x 6 x 5 x 8 x 4 B = 2,880 B, and 6 x 2 x 4 B."""
    examination = evaluated((5, 8), (5, 8), (5, 8), (2,), output_hidden_states=True)
    finding = RULE.check(evidence(examination))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 2880)
    assert finding.detail == (
        "3 hidden states of 6 samples x 5 x 8 are kept with the predictions, 2.81 KiB; everything else that is "
        "gathered takes 48 B"
    )


def test_logits_of_that_shape_are_not_meant(evaluated: Evaluated, evidence: Evidences) -> None:
    assert RULE.check(evidence(evaluated((5, 8)))) is None


def test_where_training_is_the_peak_it_is_worth_knowing(evaluated: Evaluated, evidence: Evidences) -> None:
    finding = RULE.check(evidence(evaluated((5, 8), training=10**4, output_hidden_states=True)))
    assert finding is not None
    assert finding.severity == "info"


@pytest.mark.parametrize(("labels", "fires"), [(8, True), (9, False)])
def test_at_the_threshold(evaluated: Evaluated, evidence: Evidences, labels: int, fires: bool) -> None:
    """One hidden state of 1 token x 8 beside logits."""
    examination = evaluated((1, 8), (labels,), output_hidden_states=True)
    assert (RULE.check(evidence(examination)) is not None) == fires


@pytest.mark.parametrize(("limit", "severity"), [(1000, "error"), (999, "warning")])
def test_an_error_where_the_rest_would_fit(
    evaluated: Evaluated, evidence: Evidences, limit: int, severity: str
) -> None:
    examination = evaluated((5, 8), output_hidden_states=True, stops=True, total=limit + 1000)
    finding = RULE.check(evidence(examination))
    assert finding is not None
    assert finding.severity == severity


def test_of_a_model_without_config_it_is_not_checked(evaluated: Evaluated, evidence: Evidences) -> None:
    checked = check_all([RULE], evidence(evaluated((5, 8), output_hidden_states=True), config={"factory": "own:build"}))
    why = "the model is your own code: it has no config.json that says its sizes"
    assert checked.not_checked == (NotChecked(id=RULE.id, title=RULE.title, why=why),)
