"""MD108: fires where gradients are accumulated, and says what that adds."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules.shape.md108_accumulation import RULE

HELD = {"activations": 3_000, "gradients": 1_024}
ALONE = {"gradient_accumulation_steps": 1}


def test_says_the_effective_batch_and_what_was_probed_without(holding: Any, evidence: Any) -> None:
    target = holding(HELD, batch_size=8, gradient_accumulation_steps=4, world_size=2, strategy="ddp")
    finding = RULE.check(evidence(target, probes=[(ALONE, holding({"activations": 3_000}))]))
    assert finding is not None
    assert finding.severity == "info"
    assert "8 x 4 x 2 GPUs is an effective batch of 64, but memory is that of 8" in finding.detail
    assert "1.00 KiB of gradients persist" in finding.detail
    assert finding.detail.endswith("the reserved peak is 1.00 KiB lower")
    assert finding.at_stake_bytes == 1_024


@pytest.mark.parametrize(("alone", "words"), [(4_024, "is the same"), (4_025, "is 1 B higher"), (4_023, "1 B lower")])
def test_by_one_byte(holding: Any, evidence: Any, alone: int, words: str) -> None:
    target = holding(HELD, gradient_accumulation_steps=4)
    finding = RULE.check(evidence(target, probes=[(ALONE, holding({"activations": alone}))]))
    assert finding is not None
    assert finding.detail.endswith(words)


@pytest.mark.parametrize(("steps", "fires"), [(1, False), (2, True)])
def test_at_the_threshold(holding: Any, evidence: Any, steps: int, fires: bool) -> None:
    assert (RULE.check(evidence(holding(HELD, gradient_accumulation_steps=steps))) is not None) == fires


def test_where_it_does_not_fit_the_setting_is_useless(holding: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(holding({"activations": 9_001}, fits=False, gradient_accumulation_steps=2)))
    assert finding is not None
    assert finding.severity == "warning"
