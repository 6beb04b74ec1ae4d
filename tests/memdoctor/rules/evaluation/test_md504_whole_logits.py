"""MD504: fires where logits of every token over all labels hold a share of evaluation's peak."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Examination, Task
from memdoctor.rules import Evidence
from memdoctor.rules.evaluation.md504_whole_logits import RULE

Evaluated = Callable[..., Examination]
Evidences = Callable[..., Evidence]


def test_fires_with_what_the_index_would_take(evaluated: Evaluated, evidence: Evidences) -> None:
    """6 x 5 x 100 x 4 B = 12,000 B, 6 x 5 x 8 B = 240 B; hidden states are no logits."""
    finding = RULE.check(evidence(evaluated((5, 100), (5, 200), task=Task.MASKED_LM)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 11_760)
    assert finding.detail == (
        "6 samples x 5 tokens x 100 logits x 4 B = 11.72 KiB are kept; the index of the largest is 6 samples x 5 "
        "tokens x 8 B = 240 B, 50 times less"
    )


def test_labels_of_tokens_are_known_by_their_number(evaluated: Evaluated, evidence: Evidences) -> None:
    found = evidence(evaluated((5, 9), task=Task.TOKEN_CLASSIFICATION, num_labels=9))
    finding = RULE.check(found)
    assert finding is not None
    assert finding.evidence["logits_bytes"] == 6 * 5 * 9 * 4


@pytest.mark.parametrize("task", [Task.SEQUENCE_CLASSIFICATION, Task.QUESTION_ANSWERING])
def test_other_heads_are_not_meant(evaluated: Evaluated, evidence: Evidences, task: Task) -> None:
    assert RULE.check(evidence(evaluated((5, 100), task=task))) is None


@pytest.mark.parametrize(("labels", "fires"), [(3, True), (2, False)])
def test_an_index_must_be_smaller(evaluated: Evaluated, evidence: Evidences, labels: int, fires: bool) -> None:
    """Two logits of 4 B are as large as one index of 8 B."""
    examination = evaluated((5, labels), task=Task.TOKEN_CLASSIFICATION, num_labels=labels)
    assert (RULE.check(evidence(examination)) is not None) == fires


@pytest.mark.parametrize(("lasting", "fires"), [(0, True), (1, False)])
def test_at_the_threshold(evaluated: Evaluated, evidence: Evidences, lasting: int, fires: bool) -> None:
    """6 x 1 x 3 x 4 B = 72 B are a twentieth of 1,440 B: 1,000 B, 120 B of logits at the joining, and 320 B."""
    examination = evaluated((1, 3), lasting=320 + lasting, task=Task.TOKEN_CLASSIFICATION, num_labels=3)
    assert (RULE.check(evidence(examination)) is not None) == fires
