"""MD805: fires where more optimizer state is there while it is loaded than afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import NotChecked, RanOut
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.growth.md805_resumed_twice import RULE

Evidences = Callable[..., Evidence]


def resumed(recording: Any, evidence: Evidences, copy: int, **card: Any) -> Evidence:
    """A state of 1,000 B, and ``copy`` of it that is gone before the first step."""
    recording.phase(0, "setup")
    recording.birth(100, "parameters")
    loaded = recording.birth(copy, "optimizer_state")
    recording.birth(1000, "optimizer_state")
    recording.death(loaded)
    recording.phase(1, "forward")
    recording.birth(10)
    return evidence(recording.examination(**card))


def test_fires_with_both(recording: Any, evidence: Evidences) -> None:
    finding = RULE.check(resumed(recording, evidence, 1000))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 1000)
    assert finding.detail == (
        "while the checkpoint is loaded 1.95 KiB of optimizer state are on the GPU, afterwards 1000 B: the file's copy "
        "and the optimizer's own"
    )


def test_where_that_is_the_peak_it_is_an_error(recording: Any, evidence: Evidences) -> None:
    full = RanOut(requested_bytes=1, free_bytes=0, event=2)
    finding = RULE.check(resumed(recording, evidence, 1000, outcome=full))
    assert finding is not None
    assert finding.severity == "error"


@pytest.mark.parametrize(("copy", "fires"), [(500, True), (499, False)])
def test_at_the_threshold(recording: Any, evidence: Evidences, copy: int, fires: bool) -> None:
    assert (RULE.check(resumed(recording, evidence, copy)) is not None) == fires


def test_a_run_from_the_start_is_not_checked(two_steps: Any, evidence: Evidences) -> None:
    checked = check_all([RULE], evidence(two_steps))
    why = "no run that resumes from a checkpoint was watched"
    assert checked.not_checked == (NotChecked(id=RULE.id, title=RULE.title, why=why),)
