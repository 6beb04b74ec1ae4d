"""MD203: fires where checkpointing moves the reserved peak by less than a twentieth."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules.activations.md203_checkpointing_elsewhere import RULE

PHASE = {"phase": "backward", "phase_before_bytes": 3_072, "phase_after_bytes": 1_024}


def test_in_use_it_is_a_warning(holding: Any, evidence: Any, probed_lever: Any) -> None:
    target = holding({"optimizer_state": 4_000}, phase="optimizer", gradient_checkpointing=True)
    lever = probed_lever("checkpointing", 0, status="in use", **PHASE)
    finding = RULE.check(evidence(target, levers=[lever]))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.detail == (
        "with checkpointing the peak is in optimizer, and it saves nothing of the 3.91 KiB reserved; it takes "
        "the backward phase from 3.00 KiB to 1.00 KiB, which is not what the peak hangs on"
    )
    assert finding.remedies[0] == "checkpointing switched off again (safe)"


def test_probed_where_memory_is_short_it_is_worth_knowing(holding: Any, evidence: Any, probed_lever: Any) -> None:
    target = holding({"optimizer_state": 9_001}, phase="optimizer", fits=False)
    finding = RULE.check(evidence(target, levers=[probed_lever("checkpointing", 100, **PHASE)]))
    assert finding is not None
    assert finding.severity == "info"
    assert "saves 100 B of the 8.79 KiB reserved; it takes the backward phase from 3.00 KiB to 1.00" in finding.detail
    assert not any("switched off" in remedy for remedy in finding.remedies)


def test_with_memory_to_spare_nobody_asks(holding: Any, evidence: Any, probed_lever: Any) -> None:
    assert RULE.check(evidence(holding({"optimizer_state": 4_000}), levers=[probed_lever("checkpointing", 0)])) is None


@pytest.mark.parametrize(
    ("saves", "fires"), [(-199, True), (-200, False), (199, True), (200, False)], ids=["199", "200", "+199", "+200"]
)
def test_at_the_threshold(holding: Any, evidence: Any, probed_lever: Any, saves: int, fires: bool) -> None:
    """A twentieth of 4,000 bytes is an effect."""
    target = holding({"activations": 4_000}, gradient_checkpointing=True)
    levers = [probed_lever("checkpointing", saves, status="in use")]
    assert (RULE.check(evidence(target, levers=levers)) is not None) == fires
