"""MD906: fires where a simulated run fits, or does not, by no more than the context's error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import RanOut
from memdoctor.rules import Evidence
from memdoctor.rules.environment.md906_close_call import RULE

OnCard = Callable[..., Evidence]
FULL = RanOut(requested_bytes=1, free_bytes=0, event=0)


def test_fires_with_the_margin_and_the_error(on_card: OnCard) -> None:
    finding = RULE.check(on_card(8950, context_error_bytes=100))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 100)
    assert finding.detail == (
        "the run fits, 50 B to spare; the context, 1000 B, is known to 100 B either way: with another driver it may "
        "turn out the other way"
    )


@pytest.mark.parametrize(
    ("reserves", "settings", "fires"),
    [(8900, {}, True), (8899, {}, False), (9100, {"outcome": FULL}, True), (9101, {"outcome": FULL}, False)],
)
def test_at_the_threshold(on_card: OnCard, reserves: int, settings: dict[str, Any], fires: bool) -> None:
    """9,000 B are there, to 100 either way."""
    finding = RULE.check(on_card(reserves, context_error_bytes=100, **settings))
    assert (finding is not None) == fires


def test_what_was_measured_is_no_close_call(on_card: OnCard) -> None:
    assert RULE.check(on_card(8950, context_error_bytes=100, measured=True)) is None


@pytest.mark.parametrize(("held", "fires"), [(8900, True), (8899, False)])
def test_a_full_cache_is_no_close_call(
    recording: Any, evidence: Callable[..., Evidence], held: int, fires: bool
) -> None:
    """All 9,000 B are reserved, a segment went back on the way, and tensors hold less."""
    recording.phase(1, "forward")
    recording.reserve(9000)
    recording.birth(held)
    recording.reserve(-100)
    recording.reserve(100)
    recording.birth(1, allocated=1)
    recording.death(1)
    recording.death(0)
    recording.birth(held)
    examination = recording.examination(total=10_001, context=1000)
    examination = replace(examination, device=replace(examination.device, context_error_bytes=100))
    assert (RULE.check(evidence(examination)) is not None) == fires
