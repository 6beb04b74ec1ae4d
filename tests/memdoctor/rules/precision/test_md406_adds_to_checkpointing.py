"""MD406: fires where, with checkpointing, mixed precision reserves a hundredth more than fp32."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.records import Precision
from memdoctor.rules import check_all
from memdoctor.rules.precision.md406_adds_to_checkpointing import RULE

ON = {"gradient_checkpointing": True}
BOTH = {"precision": "fp16", "gradient_checkpointing": True}
SHORT = {"activations": 9_500}


def test_with_both_in_use_it_is_a_warning(holding: Any, evidence: Any) -> None:
    target = holding({"activations": 5_120}, precision=Precision.BF16, gradient_checkpointing=True)
    finding = RULE.check(evidence(target, probes=[({"precision": "fp32"}, holding({"activations": 4_096}))]))
    assert finding is not None
    assert finding.severity == "warning"
    assert "is 4.00 KiB in fp32 and 5.00 KiB in bf16, 1.00 KiB more" in finding.detail
    assert finding.at_stake_bytes == 1_024


def test_with_neither_in_use_it_is_told_where_memory_is_short(holding: Any, evidence: Any) -> None:
    half = holding({"activations": 5_120}, precision=Precision.FP16)
    probes = [(ON, holding({"activations": 4_096})), (BOTH, half)]
    finding = RULE.check(evidence(holding(SHORT, fits=False), probes=probes))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.at_stake_bytes == 0
    assert RULE.check(evidence(holding({"activations": 8_000}), probes=probes)) is None


def test_with_checkpointing_in_use_fp16_was_probed(holding: Any, evidence: Any) -> None:
    target = holding(SHORT, fits=False, gradient_checkpointing=True)
    half = holding({"activations": 9_600}, fits=False, precision=Precision.FP16)
    finding = RULE.check(evidence(target, probes=[({"precision": "fp16"}, half)]))
    assert finding is not None
    assert finding.evidence["fp32_reserved_bytes"] == 9_500
    assert finding.evidence["mixed_reserved_bytes"] == 9_600


def test_with_fp16_in_use_checkpointing_was_probed(holding: Any, evidence: Any) -> None:
    target = holding(SHORT, fits=False, precision=Precision.FP16)
    half = holding({"activations": 5_120}, precision=Precision.FP16)
    probes = [(ON, half), ({"precision": "fp32", **ON}, holding({"activations": 4_096}))]
    finding = RULE.check(evidence(target, probes=probes))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.evidence["mixed_reserved_bytes"] == 5_120


@pytest.mark.parametrize(("more", "fires"), [(39, False), (40, True)])
def test_at_the_threshold(holding: Any, evidence: Any, more: int, fires: bool) -> None:
    target = holding({"activations": 4_000 + more}, precision=Precision.FP16, gradient_checkpointing=True)
    found = RULE.check(evidence(target, probes=[({"precision": "fp32"}, holding({"activations": 4_000}))]))
    assert (found is not None) == fires


def test_unprobed_it_is_not_checked(holding: Any, evidence: Any) -> None:
    assert check_all([RULE], evidence(holding(SHORT, fits=False))).not_checked
