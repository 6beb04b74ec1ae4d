"""MD306: fires where clipping makes a peak of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import RanOut
from memdoctor.rules import Evidence
from memdoctor.rules.optimizer.md306_clipping_is_the_peak import RULE


def examined(recording: Any, evidence: Callable[..., Evidence], own: int, phase: str = "clip", **card: Any) -> Evidence:
    """990 B when clipping begins, and its ``own`` on top."""
    recording.phase(1, "backward")
    recording.birth(990, "gradients")
    recording.phase(1, phase)
    recording.birth(own, "temporaries")
    return evidence(recording.examination(**card))


def test_fires_with_what_clipping_adds(recording: Any, evidence: Callable[..., Evidence]) -> None:
    finding = RULE.check(examined(recording, evidence, 500, max_grad_norm=1.0))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 500)
    assert finding.detail == (
        "clipping to the norm 1 takes 1.46 KiB, every other phase at most 990 B: 500 B are what clipping itself makes"
    )


def test_a_peak_elsewhere_is_not_meant(recording: Any, evidence: Callable[..., Evidence]) -> None:
    assert RULE.check(examined(recording, evidence, 500, "optimizer")) is None


@pytest.mark.parametrize(("own", "fires"), [(10, True), (9, False)])
def test_at_the_threshold(recording: Any, evidence: Callable[..., Evidence], own: int, fires: bool) -> None:
    """A hundredth of 1,000 B."""
    assert (RULE.check(examined(recording, evidence, own)) is not None) == fires


@pytest.mark.parametrize(("total", "severity"), [(1990, "error"), (1989, "warning")])
def test_an_error_where_the_rest_would_fit(
    recording: Any, evidence: Callable[..., Evidence], total: int, severity: str
) -> None:
    full = RanOut(requested_bytes=1, free_bytes=0, event=1)
    finding = RULE.check(examined(recording, evidence, 500, total=total, outcome=full))
    assert finding is not None
    assert finding.severity == severity
