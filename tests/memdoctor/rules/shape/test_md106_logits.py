"""MD106: fires where tensors over the vocabulary hold what the parameters do."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules import check_all
from memdoctor.rules.shape.md106_logits import RULE

VOCABULARY = 100
LOGITS = 4 * 16 * VOCABULARY  # 2 x 8 tokens in fp32


def headed(recording: Any, parameters: int, copies: int, rest: int = 1) -> Any:
    recording.phase(0, "setup")
    recording.birth(parameters, "parameters")
    recording.birth(4 * 2 * VOCABULARY, "gradients", dtype="float32", shape=(2, VOCABULARY))  # is no logits
    recording.phase(1, "forward")
    recording.birth(rest)
    for _ in range(copies):
        recording.birth(LOGITS, "temporaries", dtype="float32", shape=(16, VOCABULARY))
    return recording.examination(total=10**6, batch_size=2, seq_length=8)


def test_fires_with_its_copies(recording: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(headed(recording, LOGITS, 3)))
    assert finding is not None
    assert finding.severity == "warning"
    assert "3 tensors over the vocabulary alive at once (3 x 16x100 float32 = 18.75 KiB)" in finding.detail
    assert "the model's parameters 6.25 KiB" in finding.detail
    assert finding.at_stake_bytes == 3 * LOGITS


def test_a_classifier_has_none(recording: Any, evidence: Any) -> None:
    assert RULE.check(evidence(headed(recording, 1, 0))) is None


@pytest.mark.parametrize(("parameters", "fires"), [(2 * LOGITS, True), (2 * LOGITS + 1, False)])
def test_at_the_threshold(recording: Any, evidence: Any, parameters: int, fires: bool) -> None:
    assert (RULE.check(evidence(headed(recording, parameters, 2))) is not None) == fires


@pytest.mark.parametrize(("excess", "severity"), [(0, "warning"), (1, "info")])
def test_a_fifth_of_the_peak_is_substantial(recording: Any, evidence: Any, excess: int, severity: str) -> None:
    gradient = 4 * 2 * VOCABULARY
    rest = 5 * LOGITS - LOGITS - LOGITS - gradient + excess
    finding = RULE.check(evidence(headed(recording, LOGITS, 1, rest)))
    assert finding is not None
    assert finding.severity == severity


def test_of_a_model_without_config_it_is_not_checked(recording: Any, evidence: Any) -> None:
    checked = check_all([RULE], evidence(headed(recording, LOGITS, 3), config={}))
    assert [missing.id for missing in checked.not_checked] == ["MD106"]
