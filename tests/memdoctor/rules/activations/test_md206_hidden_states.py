"""MD206: fires on ``output_hidden_states``, and says who keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.records import Dtype, Loop
from memdoctor.rules.activations.md206_hidden_states import RULE

HANDED_OUT = {"output_hidden_states": True, "batch_size": 2, "seq_length": 8}
BYTES = 3 * 2 * 8 * 8 * 4  # of two layers and the embedding, hidden size 8


def test_the_trainer_drops_them(holding: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(holding({"activations": 5_000}, **HANDED_OUT)))
    assert finding is not None
    assert finding.severity == "info"
    assert "3 hidden states x 2x8x8 x 4 B = 1.50 KiB a batch" in finding.detail
    assert "the Trainer drops the outputs" in finding.detail
    assert finding.at_stake_bytes == 0


@pytest.mark.parametrize(("total", "severity"), [(1_000 + 10_000, "info"), (1_000 + 9_999, "warning")])
def test_a_loop_that_keeps_outputs(holding: Any, evidence: Any, total: int, severity: str) -> None:
    """At nine tenths of the card memory is not short yet."""
    target = holding({"temporaries": 9_000}, total=total, loop=Loop.CUSTOM, **HANDED_OUT)
    finding = RULE.check(evidence(target))
    assert finding is not None
    assert finding.severity == severity
    assert "the loop keeps the outputs" in finding.detail
    assert finding.at_stake_bytes == BYTES


def test_in_16_bits_they_are_half(holding: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(holding({"activations": 5_000}, dtype=Dtype.BFLOAT16, **HANDED_OUT)))
    assert finding is not None
    assert finding.evidence["hidden_states_bytes"] == BYTES // 2


def test_not_handed_out_they_are_not_meant(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding({"activations": 5_000}))) is None
