"""MD907: fires where more is in use than listed processes hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Counters
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.environment.md907_held_by_nobody_listed import RULE
from memdoctor.units import GIB

OnCard = Callable[..., Evidence]
Counted = Callable[..., Counters]


def test_fires_with_what_belongs_to_nobody(on_card: OnCard, counted: Counted) -> None:
    counters = counted(GIB, process_bytes=2 * GIB, listed_bytes=3 * GIB, used_bytes=9 * GIB)
    finding = RULE.check(on_card(1000, counters=counters))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 4 * GIB)
    assert finding.detail == (
        "9.00 GiB of the card are in use; this process holds 2.00 GiB, others that are listed 3.00 GiB: 4.00 GiB "
        "belong to nobody who is listed"
    )


@pytest.mark.parametrize(("unlisted", "fires"), [(GIB, True), (GIB - 1, False)])
def test_at_the_threshold(on_card: OnCard, counted: Counted, unlisted: int, fires: bool) -> None:
    """Without NVML's figure for this process, its own is what is reserved and the context of 1,000 B."""
    counters = counted(GIB, listed_bytes=0, used_bytes=GIB + 1000 + unlisted)
    assert (RULE.check(on_card(1000, counters=counters)) is not None) == fires


def test_a_simulated_run_is_not_checked(on_card: OnCard) -> None:
    why = [item.why for item in check_all([RULE], on_card(1000)).not_checked]
    assert why == ["the run was simulated: no driver counted anything"]


def test_what_nvml_does_not_tell_is_not_checked(on_card: OnCard, counted: Counted) -> None:
    why = [item.why for item in check_all([RULE], on_card(1000, counters=counted(GIB, used_bytes=GIB))).not_checked]
    assert why == ["NVML does not tell who is on the card"]
