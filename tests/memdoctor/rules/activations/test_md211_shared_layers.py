"""MD211: fires where layers share weights, memory is short and activations are the peak."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules.activations.md211_shared_layers import RULE

HELD = {"parameters": 1_024, "activations": 8_192}
SHARED = {"model_type": "albert", "hidden_size": 4096, "num_hidden_layers": 12, "num_hidden_groups": 1}


def test_fires_with_weights_and_activations(holding: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(holding(HELD, fits=False), config=SHARED))
    assert finding is not None
    assert finding.detail == (
        "12 layers share 1 set of weights, 1.00 KiB in all, but keep activations each: 8.00 KiB, 89 % of the peak, at "
        "a hidden size of 4096 (the largest kind: 1 x 8192 x 1 B = 8.00 KiB)"
    )
    assert finding.at_stake_bytes == 8_192


@pytest.mark.parametrize(("groups", "fires"), [(11, True), (12, False)])
def test_a_set_for_each_layer_is_not_shared(holding: Any, evidence: Any, groups: int, fires: bool) -> None:
    config = {**SHARED, "num_hidden_groups": groups}
    assert (RULE.check(evidence(holding(HELD, fits=False), config=config)) is not None) == fires


def test_bert_does_not_share(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding(HELD, fits=False))) is None


def test_with_memory_to_spare_it_keeps_quiet(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding({"activations": 8_100}), config=SHARED)) is None


@pytest.mark.parametrize(("rest", "fires"), [(5_000, True), (5_001, False)])
def test_at_the_threshold(holding: Any, evidence: Any, rest: int, fires: bool) -> None:
    """Half of the peak is enough."""
    target = holding({"activations": 5_000, "parameters": rest}, fits=False)
    assert (RULE.check(evidence(target, config=SHARED)) is not None) == fires
