"""MD102: fires where batch 1 fits and the target does not."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules import check_all
from memdoctor.rules.shape.md102_batch_too_large import RULE

ONE = {"batch_size": 1}


def test_fires_with_both_peaks(holding: Any, evidence: Any) -> None:
    target = holding({"activations": 9_600}, fits=False, batch_size=4)
    finding = RULE.check(evidence(target, probes=[(ONE, holding({"activations": 2_400}))]))
    assert finding is not None
    assert finding.severity == "error"
    assert "batch 4 needs 9.38 KiB of the 8.79 KiB" in finding.detail
    assert "batch 1 fits with 2.34 KiB reserved" in finding.detail
    assert finding.at_stake_bytes == 600


def test_says_the_largest_that_fits(holding: Any, evidence: Any, scaling: Any) -> None:
    target = holding({"activations": 9_600}, fits=False, batch_size=4)
    probes = [(ONE, holding({"activations": 2_400}))]
    line = scaling(largest=3, sample=2_400, fixed=0, predicted=9_600)
    finding = RULE.check(evidence(target, probes=probes, scaling=line))
    assert finding is not None
    assert finding.detail.endswith("the largest that fits is 3 (predicted): a sample takes 2.34 KiB, all else 0 B")
    assert finding.evidence["largest_batch_that_fits"] == 3


@pytest.mark.parametrize(("off", "told"), [(100, True), (101, False)])
def test_of_a_line_that_the_target_is_not_on_only_the_prediction_is_told(
    holding: Any, evidence: Any, scaling: Any, off: int, told: bool
) -> None:
    """Small batches may have their peak elsewhere in the same phase; a hundredth of 10,000 bytes is near enough."""
    target = holding({"activations": 10_000}, fits=False, batch_size=4)
    line = scaling(largest=3, sample=2_500, fixed=-off, predicted=10_000)
    finding = RULE.check(evidence(target, probes=[(ONE, holding({"activations": 2_400}))], scaling=line))
    assert finding is not None
    assert finding.detail.endswith("the largest that fits is 3 (predicted)") != told


def test_what_fits_is_not_meant(holding: Any, evidence: Any) -> None:
    target = holding({"activations": 9_000}, batch_size=4)
    assert RULE.check(evidence(target, probes=[(ONE, holding({"activations": 2_400}))])) is None


def test_at_the_edge_batch_1_decides(holding: Any, evidence: Any) -> None:
    """One that runs out is another rule's."""
    target = holding({"activations": 9_600}, fits=False, batch_size=4)
    assert RULE.check(evidence(target, probes=[(ONE, holding({"activations": 9_001}, fits=False))])) is None
    assert RULE.check(evidence(target, probes=[(ONE, holding({"activations": 9_000}))])) is not None


def test_without_a_probe_of_batch_1_it_is_not_checked(holding: Any, evidence: Any) -> None:
    checked = check_all([RULE], evidence(holding({"activations": 9_600}, fits=False, batch_size=4)))
    assert [missing.why for missing in checked.not_checked] == ["batch 1 was not probed"]
