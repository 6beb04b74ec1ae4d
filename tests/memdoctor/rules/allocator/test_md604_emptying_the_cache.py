"""MD604: fires where the cache is emptied and no more is reserved without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import NotChecked
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.allocator.md604_emptying_the_cache import RULE

Evidences = Callable[..., Evidence]
Levers = Callable[..., Any]


def examined(recording: Any, evidence: Evidences, *levers: Any, steps: int | None = 1) -> Evidence:
    recording.phase(1, "forward")
    recording.birth(2000)
    return evidence(recording.examination(torch_empty_cache_steps=steps), levers=levers)


@pytest.mark.parametrize(("leaving_saves", "fires"), [(0, True), (-1, False)])
def test_at_the_threshold(
    recording: Any, evidence: Evidences, probed_lever: Levers, leaving_saves: int, fires: bool
) -> None:
    """Leaving it costs a byte, so it saves one; or it saves none."""
    lever = probed_lever("empty_cache", leaving_saves, status="in use", fits=True)
    assert (RULE.check(examined(recording, evidence, lever)) is not None) == fires


def test_fires_with_what_is_reserved_either_way(recording: Any, evidence: Evidences, probed_lever: Levers) -> None:
    finding = RULE.check(examined(recording, evidence, probed_lever("empty_cache", 500, status="in use", fits=True)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 0)
    assert finding.detail == (
        "the cache is emptied every 1 steps, between forward and backward; PyTorch reserves 1.95 KiB with it and 1.46 "
        "KiB without, since what backward needs is reserved anew right after"
    )


def test_what_fits_only_with_it_is_left_alone(recording: Any, evidence: Evidences, probed_lever: Levers) -> None:
    lever = probed_lever("empty_cache", 0, status="in use", fits=False)
    assert RULE.check(examined(recording, evidence, lever)) is None


def test_a_cache_that_is_kept_is_not_meant(recording: Any, evidence: Evidences) -> None:
    assert check_all([RULE], examined(recording, evidence, steps=None)).passed == (RULE.id,)


def test_without_the_probe_it_is_not_checked(recording: Any, evidence: Evidences) -> None:
    checked = check_all([RULE], examined(recording, evidence))
    assert checked.not_checked == (NotChecked(id=RULE.id, title=RULE.title, why="empty_cache was not probed"),)
