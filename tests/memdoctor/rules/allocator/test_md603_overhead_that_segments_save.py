"""MD603: fires where expandable segments were probed to save a share, or to make it fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import NotChecked, RanOut
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.allocator.md603_overhead_that_segments_save import RULE

Evidences = Callable[..., Evidence]
Levers = Callable[..., Any]


def examined(recording: Any, evidence: Evidences, *levers: Any, **card: Any) -> Evidence:
    """1,500 B of tensors in 2,000 B of segments."""
    recording.phase(1, "forward")
    recording.reserve(2000)
    recording.birth(1500)
    return evidence(recording.examination(**card), levers=levers)


def test_fires_with_what_is_reserved_then(recording: Any, evidence: Evidences, probed_lever: Levers) -> None:
    finding = RULE.check(examined(recording, evidence, probed_lever("expandable_segments", 500, fits=True)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 500)
    assert finding.detail == (
        "500 B of the 1.95 KiB that PyTorch reserves hold no tensor at the peak; with expandable segments it reserves "
        "1.46 KiB"
    )


@pytest.mark.parametrize(("saves", "fires"), [(450, True), (449, False), (0, False), (-450, False)])
def test_at_the_threshold(recording: Any, evidence: Evidences, probed_lever: Levers, saves: int, fires: bool) -> None:
    """A twentieth of 9,000 B."""
    found = examined(recording, evidence, probed_lever("expandable_segments", saves, fits=True))
    assert (RULE.check(found) is not None) == fires


@pytest.mark.parametrize(("fits", "severity"), [(True, "error"), (False, None)])
def test_what_makes_it_fit_is_an_error_however_little(
    recording: Any, evidence: Evidences, probed_lever: Levers, fits: bool, severity: str | None
) -> None:
    full = RanOut(requested_bytes=1, free_bytes=0, event=0)
    lever = probed_lever("expandable_segments", 1, fits=fits)
    finding = RULE.check(examined(recording, evidence, lever, outcome=full))
    assert (finding and finding.severity) == severity


def test_segments_that_are_expandable_already_are_not_meant(
    recording: Any, evidence: Evidences, probed_lever: Levers
) -> None:
    lever = probed_lever("expandable_segments", 400, status="in use")
    assert check_all([RULE], examined(recording, evidence, lever)).passed == (RULE.id,)


def test_without_the_probe_it_is_not_checked(recording: Any, evidence: Evidences) -> None:
    checked = check_all([RULE], examined(recording, evidence))
    assert checked.not_checked == (NotChecked(id=RULE.id, title=RULE.title, why="expandable_segments was not probed"),)
