"""MD103: fires where batch 1 does not fit, the target itself or a probe of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memdoctor.rules.shape.md103_one_sample_too_large import RULE

STATIC = {"parameters": 2_000, "gradients": 2_000, "optimizer_state": 4_000}
ONE = {"batch_size": 1}


def test_fires_with_the_static_state(holding: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(holding({**STATIC, "activations": 1_500}, fits=False)))
    assert finding is not None
    assert finding.severity == "error"
    assert "batch 1 needs 9.28 KiB of the 8.79 KiB" in finding.detail
    assert "parameters 1.95 KiB + gradients 1.95 KiB + optimizer state 3.91 KiB = 7.81 KiB, 89 %" in finding.detail
    assert finding.at_stake_bytes == 8_000


def test_where_others_decide_it_is_they(holding: Any, evidence: Any) -> None:
    target = holding({**STATIC, "activations": 1_000}, fits=False)
    shared = replace(target, device=replace(target.device, other_processes_bytes=500))
    finding = RULE.check(evidence(shared))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.detail.endswith("; 500 B of the card are held by others")


def test_a_probe_of_batch_1_speaks_for_a_larger_target(holding: Any, evidence: Any) -> None:
    target = holding({**STATIC, "activations": 9_000}, fits=False, batch_size=8, gradient_accumulation_steps=4)
    finding = RULE.check(evidence(target, probes=[(ONE, holding({**STATIC, "activations": 1_001}, fits=False))]))
    assert finding is not None
    assert finding.evidence["batch_1_reserved_bytes"] == 9_001
    assert finding.detail.endswith("accumulation of 4 cannot make a batch smaller than 1")


@pytest.mark.parametrize(("activations", "fires"), [(1_000, False), (1_001, True)])
def test_at_the_limit_of_the_card(holding: Any, evidence: Any, activations: int, fires: bool) -> None:
    target = holding({**STATIC, "activations": 9_000}, fits=False, batch_size=8)
    one = holding({**STATIC, "activations": activations}, fits=not fires)
    assert (RULE.check(evidence(target, probes=[(ONE, one)])) is not None) == fires


def test_what_fits_is_not_meant(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding(STATIC))) is None


def test_a_lever_that_saves_nothing_is_no_remedy(holding: Any, evidence: Any, probed_lever: Any) -> None:
    levers = [probed_lever("checkpointing", 0), probed_lever("length", 0)]
    finding = RULE.check(evidence(holding({**STATIC, "activations": 1_500}, fits=False), levers=levers))
    assert finding is not None
    assert not any("checkpointing" in remedy or "shorter" in remedy for remedy in finding.remedies)
