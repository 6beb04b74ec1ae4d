"""MD207: fires where the reserved peak is a hundredth higher with checkpointing."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.records import Peak
from memdoctor.rules.activations.md207_checkpointing_costs import RULE


def reserved(size: int) -> Peak:
    return Peak(
        allocated_bytes=1, max_memory_allocated_bytes=1, reserved_bytes=size, device_bytes=size, phase="clip", step=1
    )


def test_in_use_it_is_a_warning(holding: Any, evidence: Any, probed_lever: Any) -> None:
    target = holding({"activations": 4_096}, phase="backward", gradient_checkpointing=True)
    lever = probed_lever("checkpointing", -1_024, status="in use", peak=reserved(3_072))
    finding = RULE.check(evidence(target, levers=[lever]))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.detail == (
        "checkpointing costs 1.00 KiB of the reserved peak (3.00 KiB without it, 4.00 KiB with it); "
        "with it the peak is in backward"
    )
    assert finding.at_stake_bytes == 1_024


def test_probed_it_is_worth_knowing_where_memory_is_short(holding: Any, evidence: Any, probed_lever: Any) -> None:
    lever = probed_lever("checkpointing", -1_024, peak=reserved(10_240))
    assert RULE.check(evidence(holding({"activations": 3_072}), levers=[lever])) is None
    finding = RULE.check(evidence(holding({"activations": 9_216}, fits=False), levers=[lever]))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.detail.endswith("with it the peak is in clip")


@pytest.mark.parametrize(("costs", "fires"), [(39, False), (40, True), (-40, False)])
def test_at_the_threshold(holding: Any, evidence: Any, probed_lever: Any, costs: int, fires: bool) -> None:
    levers = [probed_lever("checkpointing", -costs, status="in use", peak=reserved(4_000 - costs))]
    target = holding({"activations": 4_000}, gradient_checkpointing=True)
    assert (RULE.check(evidence(target, levers=levers)) is not None) == fires
