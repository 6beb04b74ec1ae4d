"""MD802: fires where at least half of what each step leaves over was packed for backward."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Examination
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.growth.md802_kept_with_graph import RULE

Leaking = Callable[..., Examination]
Evidences = Callable[..., Evidence]


def test_fires_with_the_part_that_is_for_backward(leaking: Leaking, evidence: Evidences) -> None:
    finding = RULE.check(evidence(leaking(activations=7168, temporaries=1024, total=10**9)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 8192)
    assert finding.detail == (
        "at the end of step 2 8.00 KiB more are allocated than one step before; at that rate the card is full after "
        "122,067 steps more. 7.00 KiB of it are activations: outputs or a loss are kept with the graph that made them. "
        "Most of it: 1 x 7168 uint8 of aten.tanh.default in net, 7.00 KiB"
    )


@pytest.mark.parametrize(("activations", "fires"), [(5000, True), (4999, False)])
def test_at_half(leaking: Leaking, evidence: Evidences, activations: int, fires: bool) -> None:
    examination = leaking(activations=activations, temporaries=5000)
    assert (RULE.check(evidence(examination)) is not None) == fires


@pytest.mark.parametrize(("size", "fires"), [(4096, True), (4095, False)])
def test_at_the_threshold(leaking: Leaking, evidence: Evidences, size: int, fires: bool) -> None:
    assert (RULE.check(evidence(leaking(activations=size))) is not None) == fires


def test_one_step_is_not_checked(leaking: Leaking, evidence: Evidences) -> None:
    checked = check_all([RULE], evidence(leaking(activations=5000, steps=1)))
    assert [item.id for item in checked.not_checked] == [RULE.id]
