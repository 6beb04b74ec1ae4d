"""MD607: fires where garbage is to be collected and no memory fraction is set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.rules import Evidence
from memdoctor.rules.allocator.md607_collects_nothing import RULE


def with_settings(recording: Any, evidence: Callable[..., Evidence], conf: str) -> Evidence:
    recording.phase(1, "forward")
    recording.birth(1000)
    examination = recording.examination()
    return evidence(replace(examination, device=replace(examination.device, alloc_conf=conf)))


def test_fires_with_what_it_would_do(recording: Any, evidence: Callable[..., Evidence]) -> None:
    conf = "max_split_size_mb:128, garbage_collection_threshold:0.8"
    finding = RULE.check(with_settings(recording, evidence, conf))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 0)
    assert finding.detail == (
        "garbage_collection_threshold:0.8 is to collect cached blocks above 80 % of what the process may have, and it "
        "may have the whole card: without a memory fraction PyTorch does not look at it"
    )


@pytest.mark.parametrize(
    ("conf", "fires"),
    [
        ("", False),
        ("expandable_segments:True", False),
        ("garbage_collection_threshold:0", False),
        ("garbage_collection_threshold:0.01", True),
        ("garbage_collection_threshold:0.8,per_process_memory_fraction:0.99", False),
        ("garbage_collection_threshold:0.8,per_process_memory_fraction:1.0", True),
        ("roundup_power2_divisions:[256:1,512:2],garbage_collection_threshold:0.8", True),
    ],
)
def test_at_the_threshold(recording: Any, evidence: Callable[..., Evidence], conf: str, fires: bool) -> None:
    assert (RULE.check(with_settings(recording, evidence, conf)) is not None) == fires
