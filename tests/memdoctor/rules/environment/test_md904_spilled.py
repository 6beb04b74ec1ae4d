"""MD904: fires where PyTorch has reserved more than the card has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Counters
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.environment.md904_spilled import RULE

OnCard = Callable[..., Evidence]
Counted = Callable[..., Counters]


def test_fires_with_what_is_in_the_hosts_memory(on_card: OnCard, counted: Counted) -> None:
    finding = RULE.check(on_card(1000, counters=counted(12_000)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 2000)
    assert finding.detail == (
        "PyTorch reserved 11.72 KiB on a card of 9.77 KiB: at least 1.95 KiB are in the host's memory, and every "
        "access to them crosses the bus"
    )


@pytest.mark.parametrize(("reserved", "fires"), [(10_001, True), (10_000, False)])
def test_at_the_threshold(on_card: OnCard, counted: Counted, reserved: int, fires: bool) -> None:
    assert (RULE.check(on_card(1000, counters=counted(reserved))) is not None) == fires


def test_a_simulated_run_is_not_checked(on_card: OnCard) -> None:
    assert [item.id for item in check_all([RULE], on_card(1000)).not_checked] == [RULE.id]
