"""MD602: fires where the allocator sets a share more aside than was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.rules import Evidence
from memdoctor.rules.allocator.md602_rounding import RULE


def examined(recording: Any, evidence: Callable[..., Evidence], more: int, conf: str = "") -> Evidence:
    """2,000 B, for which ``more`` is set aside on top."""
    recording.phase(1, "forward")
    recording.reserve(4000)
    recording.birth(2000, allocated=2000 + more)
    examination = recording.examination()
    return evidence(replace(examination, device=replace(examination.device, alloc_conf=conf)))


def test_fires_with_both_sums(recording: Any, evidence: Callable[..., Evidence]) -> None:
    finding = RULE.check(examined(recording, evidence, 500))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 500)
    assert finding.detail == ("tensors asked for 1.95 KiB, the allocator set 2.44 KiB aside for them: 500 B more")
    assert len(finding.remedies) == 1


def test_a_setting_that_rounds_up_is_named(recording: Any, evidence: Callable[..., Evidence]) -> None:
    finding = RULE.check(examined(recording, evidence, 500, "roundup_power2_divisions:4"))
    assert finding is not None
    assert finding.detail.endswith("; roundup_power2_divisions is set, which rounds every size up")
    assert finding.remedies[0].startswith("leave roundup_power2_divisions out")


@pytest.mark.parametrize(("more", "fires"), [(100, True), (99, False)])
def test_at_the_threshold(recording: Any, evidence: Callable[..., Evidence], more: int, fires: bool) -> None:
    """A twentieth of 2,000 B."""
    assert (RULE.check(examined(recording, evidence, more)) is not None) == fires
