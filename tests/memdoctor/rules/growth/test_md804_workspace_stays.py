"""MD804: fires where what stays after every run is one workspace of cuBLAS, or two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memdoctor.records import Examination
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.growth.md804_workspace_stays import RULE

Leaking = Callable[..., Examination]
Evidences = Callable[..., Evidence]


def after(leaking: Leaking, evidence: Evidences, *runs: int) -> Evidence:
    """A run whose workspace is 500 B."""
    return replace(evidence(leaking()), runs_allocated_bytes=runs)


def test_fires_with_their_number(leaking: Leaking, evidence: Evidences) -> None:
    finding = RULE.check(after(leaking, evidence, 1000, 1000, 1000))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 0)
    assert finding.detail == (
        "1000 B stay allocated after each of 3 runs: 2 x 500 B, the workspace that cuBLAS keeps for a thread for the "
        "life of the process; it does not grow"
    )


@pytest.mark.parametrize(
    ("runs", "fires"),
    [((500, 500), True), ((1000, 1000), True), ((1500, 1500), False), ((501, 501), False), ((0, 0), False),
     ((500, 1000), False)],
)  # fmt: skip
def test_at_the_threshold(leaking: Leaking, evidence: Evidences, runs: tuple[int, ...], fires: bool) -> None:
    """Two threads have one each; a third, or a byte more, is something else."""
    assert (RULE.check(after(leaking, evidence, *runs)) is not None) == fires


def test_one_run_is_not_checked(leaking: Leaking, evidence: Evidences) -> None:
    assert [item.id for item in check_all([RULE], after(leaking, evidence, 500)).not_checked] == [RULE.id]
