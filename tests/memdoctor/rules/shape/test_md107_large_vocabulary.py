"""MD107: fires where the word embedding is two fifths of the parameters."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules.shape.md107_large_vocabulary import RULE

SHAPE = (100, 8)
TABLE = 4 * 100 * 8


def built(recording: Any, rest: int, states: int = 2, **more: Any) -> Any:
    recording.phase(0, "setup")
    recording.birth(TABLE, "parameters", dtype="float32", shape=SHAPE)
    recording.birth(rest, "parameters")
    recording.phase(1, "backward")
    recording.birth(TABLE, "gradients", dtype="float32", shape=SHAPE)
    recording.phase(1, "optimizer")
    for _ in range(states):
        recording.birth(TABLE, "optimizer_state", dtype="float32", shape=SHAPE)
    return recording.examination(**{"total": 10**6, **more})


def test_fires_with_gradient_and_state(recording: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(built(recording, TABLE)))
    assert finding is not None
    assert finding.severity == "info"
    assert "100 x 8 x 4 B = 3.13 KiB of 6.25 KiB of parameters (50 %)" in finding.detail
    assert "with its gradient and 2 tensors of optimizer state it is 12.50 KiB" in finding.detail
    assert finding.at_stake_bytes == 4 * TABLE


def test_without_momentum_there_is_one_copy_less(recording: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(built(recording, TABLE, states=1, total=14_000)))
    assert finding is not None
    assert finding.severity == "warning"  # 12,800 of 13,000 bytes
    assert "with its gradient and one tensor of optimizer state it is" in finding.detail


@pytest.mark.parametrize(("rest", "fires"), [(TABLE * 3 // 2, True), (TABLE * 3 // 2 + 1, False)])
def test_at_the_threshold(recording: Any, evidence: Any, rest: int, fires: bool) -> None:
    assert (RULE.check(evidence(built(recording, rest))) is not None) == fires


def test_another_vocabulary_is_another_table(recording: Any, evidence: Any) -> None:
    assert RULE.check(evidence(built(recording, TABLE), config={"hidden_size": 8, "vocab_size": 101})) is None
