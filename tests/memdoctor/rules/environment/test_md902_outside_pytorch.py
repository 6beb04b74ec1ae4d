"""MD902: fires where a process holds more outside PyTorch than a context and its libraries take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Counters
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.environment.md902_outside_pytorch import RULE
from memdoctor.units import GIB

OnCard = Callable[..., Evidence]
Counted = Callable[..., Counters]
LIMIT = 5 * GIB // 2


def test_fires_with_both_figures(on_card: OnCard, counted: Counted) -> None:
    finding = RULE.check(on_card(1000, counters=counted(GIB, process_bytes=13 * GIB)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 12 * GIB)
    assert finding.detail == (
        "this process holds 13.00 GiB of the card, and PyTorch's allocator 1.00 GiB of that: 12.00 GiB are outside it, "
        "where a context takes 1000 B"
    )


@pytest.mark.parametrize(("outside", "fires"), [(LIMIT, True), (LIMIT - 1, False)])
def test_at_the_threshold(on_card: OnCard, counted: Counted, outside: int, fires: bool) -> None:
    assert (RULE.check(on_card(1000, counters=counted(GIB, process_bytes=GIB + outside))) is not None) == fires


def test_what_nobody_counted_is_not_checked(on_card: OnCard) -> None:
    why = [item.why for item in check_all([RULE], on_card(1000)).not_checked]
    assert why == ["the run was simulated: no driver counted anything"]


def test_what_nvml_does_not_tell_is_not_checked(on_card: OnCard, counted: Counted) -> None:
    why = [item.why for item in check_all([RULE], on_card(1000, counters=counted(GIB))).not_checked]
    assert why == ["NVML does not tell what this process holds"]
