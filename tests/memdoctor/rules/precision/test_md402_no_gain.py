"""MD402: fires where fp32 and mixed precision reserve nearly the same, with both terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import Precision
from memdoctor.rules import check_all
from memdoctor.rules.precision.md402_no_gain import RULE

FULL = {"parameters": 2_048, "activations": 2_048}
MIXED = {"parameters": 2_048, "activations": 1_024, "autocast_copies": 1_024}
IN_FP32 = {"precision": "fp32"}


@pytest.mark.parametrize(("fits", "severity"), [(False, "warning"), (True, "info")])
def test_in_use_it_is_a_warning_where_memory_is_short(holding: Any, evidence: Any, fits: bool, severity: str) -> None:
    target = holding(MIXED, fits=fits, precision=Precision.FP16)
    finding = RULE.check(evidence(target, probes=[(IN_FP32, holding(FULL))]))
    assert finding is not None
    assert finding.severity == severity
    assert "fp16 saves nothing of the reserved peak (4.00 KiB in fp32, in forward; 4.00 KiB in fp16" in finding.detail
    assert "activations go from 2.00 KiB to 1.00 KiB, copies of weights in 16 bits add 1.00 KiB" in finding.detail
    assert "and 2.00 KiB of parameters, gradients and optimizer state stay as they are" in finding.detail


def test_where_it_costs_the_cost_is_at_stake(holding: Any, evidence: Any) -> None:
    target = holding({**MIXED, "temporaries": 100}, precision=Precision.BF16)
    finding = RULE.check(evidence(target, probes=[(IN_FP32, holding(FULL))]))
    assert finding is not None
    assert finding.detail.startswith("bf16 costs 100 B")
    assert finding.at_stake_bytes == 100


def test_probed_it_is_worth_knowing_where_memory_is_short(holding: Any, evidence: Any) -> None:
    half = ({"precision": "fp16"}, holding({"parameters": 9_500}, fits=False, precision=Precision.FP16))
    finding = RULE.check(evidence(holding({"parameters": 9_500}, fits=False), probes=[half]))
    assert finding is not None
    assert finding.severity == "info"
    assert RULE.check(evidence(holding({"parameters": 4_000}), probes=[half])) is None


@pytest.mark.parametrize(("saves", "fires"), [(199, True), (200, False)])
def test_at_the_threshold(holding: Any, evidence: Any, saves: int, fires: bool) -> None:
    """A twentieth of 4,000 bytes is a gain."""
    target = holding({"activations": 4_000 - saves}, precision=Precision.FP16)
    found = RULE.check(evidence(target, probes=[(IN_FP32, holding({"activations": 4_000}))]))
    assert (found is not None) == fires


@pytest.mark.parametrize(("precision", "kept"), [(Precision.FP16, True), (Precision.BF16, False)])
def test_it_is_kept_for_its_speed_only_where_it_has_one(
    holding: Any, evidence: Any, precision: Precision, kept: bool
) -> None:
    """The card has compute capability 7.5."""
    target = holding(MIXED, precision=precision)
    finding = RULE.check(evidence(target, probes=[(IN_FP32, holding(FULL))]))
    assert finding is not None
    assert any("speed" in remedy for remedy in finding.remedies) == kept


def test_with_one_of_the_two_it_is_not_checked(holding: Any, evidence: Any) -> None:
    assert check_all([RULE], evidence(holding(MIXED, precision=Precision.FP16))).not_checked
    assert check_all([RULE], evidence(holding(FULL))).passed  # nobody asks


@pytest.mark.parametrize(("capability", "told"), [("7.5", False), ("8.0", True)])
def test_weights_in_bf16_are_for_cards_that_have_it(holding: Any, evidence: Any, capability: str, told: bool) -> None:
    target = holding(MIXED, precision=Precision.FP16)
    target = replace(target, device=replace(target.device, compute_capability=capability))
    finding = RULE.check(evidence(target, probes=[(IN_FP32, holding(FULL))]))
    assert finding is not None
    assert any("bfloat16" in remedy for remedy in finding.remedies) == told
