"""MD803: fires where each run leaves more than the one before, and says how many times the weights that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memdoctor.records import Examination, NotChecked
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.growth.md803_kept_between_runs import RULE

Leaking = Callable[..., Examination]
Evidences = Callable[..., Evidence]


def after(leaking: Leaking, evidence: Evidences, *runs: int) -> Evidence:
    """A model whose weights are 1,000 B."""
    return replace(evidence(leaking()), runs_allocated_bytes=runs)


def test_fires_with_the_multiple_of_the_weights(leaking: Leaking, evidence: Evidences) -> None:
    finding = RULE.check(after(leaking, evidence, 1100, 2100, 3080))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 1980)
    assert finding.detail == (
        "after 3 runs 1.07 KiB, 2.05 KiB, 3.01 KiB are allocated: 980 B or more each run, on average 0.99 times the "
        "weights (1000 B): the model itself is retained"
    )


@pytest.mark.parametrize(
    ("growth", "meaning"),
    [
        (3000, ": the model and its optimizer's state are retained"),
        (4100, ": the model, its gradients and its optimizer's state are retained"),
        (4101, ""),
        (500, ""),
        (7000, ""),
    ],
)
def test_only_a_multiple_has_a_meaning(leaking: Leaking, evidence: Evidences, growth: int, meaning: str) -> None:
    finding = RULE.check(after(leaking, evidence, 0, growth))
    assert finding is not None
    assert finding.detail.partition("(1000 B)")[2] == meaning


@pytest.mark.parametrize(("growth", "fires"), [(50, True), (49, False), (0, False), (-50, False)])
def test_at_the_threshold(leaking: Leaking, evidence: Evidences, growth: int, fires: bool) -> None:
    """A twentieth of the weights."""
    assert (RULE.check(after(leaking, evidence, 1000, 1000 + growth)) is not None) == fires


def test_growth_must_be_steady(leaking: Leaking, evidence: Evidences) -> None:
    assert RULE.check(after(leaking, evidence, 1000, 2000, 2000)) is None


def test_one_run_is_not_checked(leaking: Leaking, evidence: Evidences) -> None:
    checked = check_all([RULE], after(leaking, evidence, 1000))
    why = "nobody watched several runs in one process"
    assert checked.not_checked == (NotChecked(id=RULE.id, title=RULE.title, why=why),)
