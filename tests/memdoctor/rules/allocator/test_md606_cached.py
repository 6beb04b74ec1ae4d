"""MD606: fires where a large share of what is reserved holds no tensor at the peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.rules import Evidence
from memdoctor.rules.allocator.md606_cached import RULE


def examined(recording: Any, evidence: Callable[..., Evidence], held: int) -> Evidence:
    recording.phase(1, "forward")
    recording.reserve(4000)
    recording.birth(held)
    return evidence(recording.examination())


def test_fires_with_what_nvidia_smi_shows(recording: Any, evidence: Callable[..., Evidence]) -> None:
    """1,000 B of context on top of 4,000."""
    finding = RULE.check(examined(recording, evidence, 2000))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 2000)
    assert finding.detail == (
        "PyTorch reserves 3.91 KiB, and tensors hold at most 1.95 KiB of it: 1.95 KiB are cached blocks of sizes that "
        "came and went. nvidia-smi shows 4.88 KiB; that is no leak, and PyTorch gives whole segments back before it "
        "fails"
    )


@pytest.mark.parametrize(("saves", "told"), [(1, True), (0, False)])
def test_expandable_segments_are_told_where_they_save(
    recording: Any, evidence: Callable[..., Evidence], probed_lever: Callable[..., Any], saves: int, told: bool
) -> None:
    found = examined(recording, evidence, 2000).examination
    finding = RULE.check(evidence(found, levers=[probed_lever("expandable_segments", saves)]))
    assert finding is not None
    assert any("expandable_segments" in remedy for remedy in finding.remedies) == told
    assert any("empty_cache" in remedy for remedy in finding.remedies)


@pytest.mark.parametrize(("held", "fires"), [(3000, True), (3001, False)])
def test_at_the_threshold(recording: Any, evidence: Callable[..., Evidence], held: int, fires: bool) -> None:
    """A quarter of 4,000 B."""
    assert (RULE.check(examined(recording, evidence, held)) is not None) == fires


@pytest.mark.parametrize(("total", "fires"), [(40_000, True), (40_001, False)])
def test_at_the_threshold_of_the_card(
    recording: Any, evidence: Callable[..., Evidence], total: int, fires: bool
) -> None:
    """2,000 B are a twentieth of 40,000."""
    found = examined(recording, evidence, 2000).examination
    assert (RULE.check(evidence(replace(found, device=replace(found.device, total_bytes=total)))) is not None) == fires
