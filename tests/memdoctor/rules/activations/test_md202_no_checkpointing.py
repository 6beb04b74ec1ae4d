"""MD202: fires where memory is short, activations are half of the peak, and checkpointing was probed to help."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.records import Peak
from memdoctor.rules import check_all
from memdoctor.rules.activations.md202_no_checkpointing import RULE

TOO_MUCH = {"activations": 8_192, "parameters": 2_048}
AFTER = Peak(
    allocated_bytes=4_096, max_memory_allocated_bytes=4_096, reserved_bytes=4_096, device_bytes=5_096,
    phase="optimizer", step=1,
)  # fmt: skip


def test_fires_with_the_probed_effect(holding: Any, evidence: Any, probed_lever: Any) -> None:
    lever = probed_lever("checkpointing", 6_144, peak=AFTER, fits=True)
    finding = RULE.check(evidence(holding(TOO_MUCH, fits=False), levers=[lever]))
    assert finding is not None
    assert "activations are 8.00 KiB, 80 % of the peak in forward" in finding.detail
    assert (
        "checkpointing saves 6.00 KiB of the reserved peak (10.00 KiB without it, 4.00 KiB with it)" in finding.detail
    )
    assert finding.detail.endswith("and then it fits")
    assert finding.at_stake_bytes == 6_144


def test_with_memory_to_spare_it_keeps_quiet(holding: Any, evidence: Any, probed_lever: Any) -> None:
    levers = [probed_lever("checkpointing", 6_144, peak=AFTER)]
    assert RULE.check(evidence(holding({"activations": 8_000}), levers=levers)) is None


@pytest.mark.parametrize(("saves", "fires"), [(1, True), (0, False), (-1, False)])
def test_what_saves_nothing_is_not_missing(
    holding: Any, evidence: Any, probed_lever: Any, saves: int, fires: bool
) -> None:
    levers = [probed_lever("checkpointing", saves, peak=AFTER)]
    assert (RULE.check(evidence(holding(TOO_MUCH, fits=False), levers=levers)) is not None) == fires


@pytest.mark.parametrize(("rest", "fires"), [(5_000, True), (5_001, False)])
def test_at_the_threshold(holding: Any, evidence: Any, probed_lever: Any, rest: int, fires: bool) -> None:
    """Half of the peak is enough."""
    target = holding({"activations": 5_000, "parameters": rest}, fits=False)
    levers = [probed_lever("checkpointing", 4_000, peak=AFTER)]
    assert (RULE.check(evidence(target, levers=levers)) is not None) == fires


def test_where_it_is_in_use_it_is_not_absent(holding: Any, evidence: Any, probed_lever: Any) -> None:
    levers = [probed_lever("checkpointing", 6_144, peak=AFTER, status="in use")]
    assert RULE.check(evidence(holding(TOO_MUCH, fits=False, gradient_checkpointing=True), levers=levers)) is None


def test_unprobed_it_is_not_checked(holding: Any, evidence: Any) -> None:
    assert check_all([RULE], evidence(holding(TOO_MUCH, fits=False))).not_checked
