"""MD204: fires where the step with checkpointing is, birth by birth, the one without."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules import check_all
from memdoctor.rules.activations.md204_checkpointing_ignored import RULE, WITHOUT


def test_fires_on_the_same_step(holding: Any, evidence: Any) -> None:
    sizes = {"parameters": 1_024, "activations": 2_048}
    target = holding(sizes, gradient_checkpointing=True)
    finding = RULE.check(evidence(target, probes=[(WITHOUT, holding(sizes))]))
    assert finding is not None
    assert finding.severity == "warning"
    assert "3.00 KiB reserved both times, and 2.00 KiB of activations" in finding.detail
    assert finding.at_stake_bytes == 2_048


@pytest.mark.parametrize("difference", [-1, 1])
def test_one_byte_is_a_difference(holding: Any, evidence: Any, difference: int) -> None:
    target = holding({"activations": 2_048}, gradient_checkpointing=True)
    assert RULE.check(evidence(target, probes=[(WITHOUT, holding({"activations": 2_048 + difference}))])) is None


def test_not_asked_for_it_is_not_ignored(holding: Any, evidence: Any) -> None:
    found = check_all([RULE], evidence(holding({"activations": 2_048})))
    assert found.passed == ("MD204",)


def test_without_the_other_probe_it_is_not_checked(holding: Any, evidence: Any) -> None:
    found = check_all([RULE], evidence(holding({"activations": 2_048}, gradient_checkpointing=True)))
    assert [missing.id for missing in found.not_checked] == ["MD204"]
