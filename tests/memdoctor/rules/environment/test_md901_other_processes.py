"""MD901: fires where others hold a share of the card, or what this run misses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import RanOut
from memdoctor.rules import Evidence
from memdoctor.rules.environment.md901_other_processes import RULE

OnCard = Callable[..., Evidence]
FULL = RanOut(requested_bytes=1, free_bytes=0, event=0)


@pytest.mark.parametrize(
    ("reserves", "settings", "severity", "says"),
    [
        (1000, {}, "info", "This run reserves 1000 B and fits all the same"),
        (9000, {"outcome": FULL}, "error",
         "This run reserves 8.79 KiB and would fit without them: its batch size is not the problem"),
        (9001, {"outcome": FULL}, "warning", "This run reserves 8.79 KiB and would not fit without them either"),
        (9000, {"outcome": FULL, "measured": True}, "warning",
         "This run had reserved 8.79 KiB when it stopped; what it would have taken then is not known"),
    ],
)  # fmt: skip
def test_fires_and_says_whether_it_would_fit_without_them(
    on_card: OnCard, reserves: int, settings: dict[str, object], severity: str, says: str
) -> None:
    """A card of 10,000 B with 1,000 of context: 9,000 are there for one who is alone."""
    finding = RULE.check(on_card(reserves, other_processes_bytes=6000, **settings))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == (severity, 6000)
    assert finding.detail == (
        "5.86 KiB of 9.77 KiB are held by other processes; without them PyTorch could have 8.79 KiB, with them 2.93 "
        f"KiB. {says}"
    )


@pytest.mark.parametrize(("others", "fires"), [(500, True), (499, False), (0, False)])
def test_at_the_threshold(on_card: OnCard, others: int, fires: bool) -> None:
    """A twentieth of 10,000 B."""
    assert (RULE.check(on_card(1000, other_processes_bytes=others)) is not None) == fires


def test_however_little_it_is_that_is_missing(on_card: OnCard) -> None:
    finding = RULE.check(on_card(9000, other_processes_bytes=1, outcome=FULL))
    assert finding is not None
    assert finding.severity == "error"
