"""MD211: fires where LoRA or frozen parts leave activations as the peak, and memory is short."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules.activations.md211_few_parameters_trained import RULE

HELD = {"parameters": 1_024, "gradients": 100, "optimizer_state": 200, "activations": 8_192}


@pytest.mark.parametrize("saving", [{"lora_rank": 8}, {"freeze": ("embeddings*",)}])
def test_fires_with_what_was_saved_and_what_was_not(holding: Any, evidence: Any, saving: dict[str, Any]) -> None:
    finding = RULE.check(evidence(holding(HELD, fits=False, **saving)))
    assert finding is not None
    assert "gradients are 100 B and optimizer state 200 B beside 1.00 KiB of parameters" in finding.detail
    assert "but activations 8.00 KiB, 86 % of the peak" in finding.detail
    assert finding.at_stake_bytes == 8_192


def test_all_trained_is_not_meant(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding(HELD, fits=False))) is None


def test_with_memory_to_spare_it_keeps_quiet(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding({"activations": 8_100}, lora_rank=8))) is None


@pytest.mark.parametrize(("rest", "fires"), [(5_000, True), (5_001, False)])
def test_at_the_threshold(holding: Any, evidence: Any, rest: int, fires: bool) -> None:
    """Half of the peak is enough."""
    target = holding({"activations": 5_000, "parameters": rest}, fits=False, lora_rank=8)
    assert (RULE.check(evidence(target)) is not None) == fires
