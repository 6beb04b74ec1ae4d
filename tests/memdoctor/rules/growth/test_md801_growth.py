"""MD801: fires where each step leaves more than the one before, and it is not activations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Examination, RanOut
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.growth.md801_growth import RULE

Leaking = Callable[..., Examination]
Evidences = Callable[..., Evidence]


def test_fires_with_what_is_kept_and_when_the_card_is_full(leaking: Leaking, evidence: Evidences) -> None:
    """1,000 + 2,000 + 500 + 16 + 16 B, and 8,192 of each step: 19,916 B reserved; 4 x 8,192 B more are free."""
    reserved = 1000 + 2000 + 500 + 16 + 16 + 2 * 8192
    examination = leaking(temporaries=8192, total=reserved + 4 * 8192 + 1000)
    finding = RULE.check(evidence(examination))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("error", 8192)
    assert finding.detail == (
        "at the end of step 2 8.00 KiB more are allocated than one step before; at that rate the card is full after 4 "
        "steps more. Most of it: 1 x 8192 uint8 of aten.tanh.default in net, 8.00 KiB"
    )


@pytest.mark.parametrize(("size", "fires"), [(4096, True), (4095, False), (0, False)])
def test_at_the_threshold(leaking: Leaking, evidence: Evidences, size: int, fires: bool) -> None:
    assert (RULE.check(evidence(leaking(temporaries=size))) is not None) == fires


@pytest.mark.parametrize(("activations", "fires"), [(4999, True), (5000, False)])
def test_mainly_activations_are_md802s(leaking: Leaking, evidence: Evidences, activations: int, fires: bool) -> None:
    examination = leaking(activations=activations, temporaries=5000)
    assert (RULE.check(evidence(examination)) is not None) == fires


def test_three_steps_show_it_twice(leaking: Leaking, evidence: Evidences) -> None:
    """Three steps that each leave as much are one step's growth twice."""
    finding = RULE.check(evidence(leaking(temporaries=5000, steps=3)))
    assert finding is not None
    assert finding.detail.startswith("at the end of step 3 4.88 KiB more are allocated than one step before")
    assert finding.evidence["steps_seen"] == 3


@pytest.mark.parametrize(("left", "severity"), [(999, "error"), (1000, "warning")])
def test_soon_is_an_error(leaking: Leaking, evidence: Evidences, left: int, severity: str) -> None:
    reserved = 1000 + 2000 + 500 + 16 + 16 + 2 * 5000
    finding = RULE.check(evidence(leaking(temporaries=5000, total=reserved + left * 5000 + 1000)))
    assert finding is not None
    assert finding.severity == severity


def test_what_does_not_fit_anyhow_is_a_warning(leaking: Leaking, evidence: Evidences) -> None:
    full = RanOut(requested_bytes=1, free_bytes=0, event=0)
    finding = RULE.check(evidence(leaking(temporaries=5000, total=5000, outcome=full)))
    assert finding is not None
    assert finding.severity == "warning"
    assert "full" not in finding.detail


def test_one_step_is_not_checked(leaking: Leaking, evidence: Evidences) -> None:
    checked = check_all([RULE], evidence(leaking(temporaries=5000, steps=1)))
    assert [item.why for item in checked.not_checked] == ["fewer than two whole steps were run"]
