"""MD601: fires where what is stranded at the failure is a large share of the card and would have done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import NotChecked, RanOut
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.allocator.md601_fragmentation import RULE


def examined(recording: Any, evidence: Callable[..., Evidence], stranded: int | None, asked: int = 1000) -> Evidence:
    """On a card of 10,000 B a request fails with 100 B free, and so much reserved beside 5,000 B allocated."""
    recording.phase(1, "forward")
    recording.birth(9000)
    figures = {} if stranded is None else {"allocated_bytes": 5000, "reserved_bytes": 5000 + stranded}
    full = RanOut(requested_bytes=asked, free_bytes=100, event=0, segment_bytes=asked, **figures)
    return evidence(recording.examination(total=10_000, outcome=full))


def test_fires_with_the_share_of_the_card(
    recording: Any, evidence: Callable[..., Evidence], probed_lever: Callable[..., Any]
) -> None:
    found = examined(recording, evidence, 2100)
    finding = RULE.check(evidence(found.examination, levers=[probed_lever("expandable_segments", 2000)]))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("error", 2100)
    assert finding.detail == (
        "when 1000 B could not be had in forward, PyTorch had reserved 6.93 KiB and given out 4.88 KiB: 2.05 KiB, 21 % "
        "of the card, lay in pieces between tensors; probed: expandable_segments saves 1.95 KiB of what is reserved"
    )


@pytest.mark.parametrize(("stranded", "fires"), [(1300, True), (1299, False)])
def test_at_the_threshold(recording: Any, evidence: Callable[..., Evidence], stranded: int, fires: bool) -> None:
    """13 % of the card; that it is more than was asked for is not enough."""
    assert (RULE.check(examined(recording, evidence, stranded)) is not None) == fires


@pytest.mark.parametrize(("asked", "fires"), [(2200, True), (2201, False)])
def test_the_pieces_must_have_been_enough(
    recording: Any, evidence: Callable[..., Evidence], asked: int, fires: bool
) -> None:
    """2,100 B in pieces and 100 B free."""
    assert (RULE.check(examined(recording, evidence, 2100, asked)) is not None) == fires


def test_what_fits_has_no_failure(two_steps: Any, evidence: Callable[..., Evidence]) -> None:
    assert check_all([RULE], evidence(two_steps)).passed == (RULE.id,)


def test_without_figures_it_is_not_checked(recording: Any, evidence: Callable[..., Evidence]) -> None:
    checked = check_all([RULE], examined(recording, evidence, None))
    why = "the run ran out of memory, but the file does not say what PyTorch had reserved then"
    assert checked.not_checked == (NotChecked(id=RULE.id, title=RULE.title, why=why),)
