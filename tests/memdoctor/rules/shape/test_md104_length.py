"""MD104: fires where a shorter sequence was probed to fit and the target does not."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.records import Attention
from memdoctor.rules import check_all
from memdoctor.rules.shape.md104_length import RULE

TARGET = {"batch_size": 2, "seq_length": 512}


def probe(holding: Any, length: int, activations: int, *, fits: bool = True) -> Any:
    return {"seq_length": length}, holding({"activations": activations}, fits=fits)


def test_fires_with_the_longest_that_fits(holding: Any, evidence: Any) -> None:
    target = holding({"activations": 12_288}, fits=False, **TARGET)
    probes = [probe(holding, 128, 3_072), probe(holding, 256, 6_144), probe(holding, 384, 9_216, fits=False)]
    finding = RULE.check(evidence(target, probes=probes))
    assert finding is not None
    assert finding.severity == "error"
    assert "2 x 512 tokens need 12.00 KiB of the 8.79 KiB" in finding.detail
    assert "2 x 256 fit with 6.00 KiB reserved: for 2.00 times the tokens" in finding.detail
    assert "activations go from 6.00 KiB to 12.00 KiB" in finding.detail
    assert "square" not in finding.detail
    assert finding.at_stake_bytes == 6_144


def test_where_one_sample_fits_it_is_only_worth_knowing(holding: Any, evidence: Any) -> None:
    target = holding({"activations": 12_288}, fits=False, **TARGET)
    one = ({"batch_size": 1}, holding({"activations": 6_144}))
    finding = RULE.check(evidence(target, probes=[probe(holding, 256, 6_144), one]))
    assert finding is not None
    assert finding.severity == "info"


def test_eager_attention_grows_with_the_square(holding: Any, evidence: Any) -> None:
    target = holding({"activations": 12_288}, fits=False, attention=Attention.EAGER, **TARGET)
    finding = RULE.check(evidence(target, probes=[probe(holding, 256, 3_072)]))
    assert finding is not None
    assert finding.detail.endswith("grows with the square")


def test_what_fits_is_not_meant(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding({"activations": 9_000}, **TARGET), probes=[probe(holding, 256, 1)])) is None


@pytest.mark.parametrize(("length", "fires"), [(511, True), (512, False), (513, False)])
def test_only_shorter_ones_count(holding: Any, evidence: Any, length: int, fires: bool) -> None:
    target = holding({"activations": 12_288}, fits=False, **TARGET)
    assert (RULE.check(evidence(target, probes=[probe(holding, length, 1)])) is not None) == fires


def test_where_no_shorter_one_fits_the_length_alone_is_not_the_cause(holding: Any, evidence: Any) -> None:
    target = holding({"activations": 12_288}, fits=False, **TARGET)
    assert RULE.check(evidence(target, probes=[probe(holding, 128, 9_001, fits=False)])) is None


def test_without_a_shorter_probe_it_is_not_checked(holding: Any, evidence: Any) -> None:
    checked = check_all([RULE], evidence(holding({"activations": 12_288}, fits=False, **TARGET)))
    assert [missing.why for missing in checked.not_checked] == ["no shorter sequence was probed"]
