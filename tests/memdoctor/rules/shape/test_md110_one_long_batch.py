"""MD110: fires where the target fits and a longer sequence was probed not to."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules import check_all
from memdoctor.rules.shape.md110_one_long_batch import RULE

TARGET = {"batch_size": 2, "seq_length": 128}
CONFIG = {"hidden_size": 8, "max_position_embeddings": 514}


def probe(holding: Any, length: int, activations: int) -> Any:
    return {"seq_length": length}, holding({"activations": activations}, fits=activations <= 9_000)


def test_fires_with_what_one_batch_needs(holding: Any, evidence: Any) -> None:
    target = holding({"activations": 3_072}, **TARGET)
    probes = [probe(holding, 256, 6_144), probe(holding, 512, 12_288)]
    finding = RULE.check(evidence(target, probes=probes))
    assert finding is not None
    assert finding.severity == "info"
    assert "2 x 128 leaves 5.79 KiB free, and one batch of 2 x 512 would need 9.00 KiB more" in finding.detail
    assert "the longest probed that fits is 256" in finding.detail
    assert finding.at_stake_bytes == 9_216


@pytest.mark.parametrize(("activations", "fires"), [(9_000, False), (9_001, True)])
def test_at_the_limit_of_the_card(holding: Any, evidence: Any, activations: int, fires: bool) -> None:
    found = evidence(holding({"activations": 3_072}, **TARGET), probes=[probe(holding, 512, activations)])
    assert (RULE.check(found) is not None) == fires


def test_what_does_not_fit_as_it_is_is_not_meant(holding: Any, evidence: Any) -> None:
    target = holding({"activations": 9_001}, fits=False, **TARGET)
    assert RULE.check(evidence(target, probes=[probe(holding, 512, 12_288)])) is None


@pytest.mark.parametrize(("length", "checked"), [(511, False), (512, True)])
def test_at_the_models_maximum_there_is_nothing_longer(holding: Any, evidence: Any, length: int, checked: bool) -> None:
    """Of 514 positions RoBERTa uses 512."""
    found = check_all([RULE], evidence(holding({"activations": 1}, seq_length=length), config=CONFIG))
    assert (found.passed == ("MD110",)) == checked
    assert bool(found.not_checked) != checked
