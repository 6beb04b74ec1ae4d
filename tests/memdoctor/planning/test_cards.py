"""The smallest card that would do is looked for from the smallest on, and is one that was probed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.catalogue import gpus
from memdoctor.planning import Subject
from memdoctor.planning.cards import SLACK, WAVE, fit_of, smallest_card
from memdoctor.records import Completed, Examination, RanOut, Workload

TARGET = Workload(model="by-hand", batch_size=1, seq_length=8)
CARDS = sorted((entry.device for entry in gpus()), key=lambda card: (card.total_bytes, card.name))
GIB = 2**30


class Cards:
    """Cards that take what leaves room for ``needed`` bytes, and those that were asked."""

    def __init__(self, holding: Callable[..., Examination], needed: int) -> None:
        self.holding = holding
        self.needed = needed
        self.asked: list[str] = []

    def probe(self, subjects: Sequence[Subject]) -> list[Examination | None]:
        """Each on its card."""
        self.asked += [device.name for _, device in subjects]
        return [self._on(workload, device) for workload, device in subjects]

    def _on(self, workload: Workload, device: Any) -> Examination:
        made = self.holding({"activations": self.needed})
        fits = device.allocator_limit_bytes >= self.needed
        outcome = Completed() if fits else RanOut(requested_bytes=1, free_bytes=0, event=0)
        return replace(made, workload=workload, device=device, outcome=outcome)


@pytest.fixture
def cards(holding: Callable[..., Examination]) -> Callable[[int], Cards]:
    """Cards for so many bytes."""
    return lambda needed: Cards(holding, needed)


@pytest.mark.parametrize("needed", [1, 5 * GIB, 15 * GIB, 40 * GIB])
def test_it_is_the_smallest_of_all_that_take_it(cards: Any, needed: int) -> None:
    here = cards(needed)
    found = smallest_card(TARGET, "", needed, here.probe)
    able = [card for card in CARDS if card.allocator_limit_bytes >= needed]
    assert (found.gpu, found.total_bytes, found.fits) == (able[0].name, able[0].total_bytes, True)
    assert found.headroom_bytes == able[0].allocator_limit_bytes - needed
    assert found.gpu in here.asked
    assert len(here.asked) <= 3 * WAVE


def test_cards_that_are_far_too_small_are_not_probed(cards: Any) -> None:
    here = cards(20 * GIB)
    smallest_card(TARGET, "", 20 * GIB, here.probe)
    limits = {card.name: card.allocator_limit_bytes for card in CARDS}
    assert min(limits[name] for name in here.asked) >= SLACK * 20 * GIB


def test_a_card_that_picks_other_kernels_may_need_less_than_what_was_reserved_elsewhere(cards: Any) -> None:
    card = next(card for card in CARDS if card.allocator_limit_bytes > 10 * GIB)
    found = smallest_card(TARGET, "", card.allocator_limit_bytes + 1, cards(card.allocator_limit_bytes).probe)
    assert found.gpu == card.name


def test_where_no_card_takes_it_there_is_none(cards: Any) -> None:
    here = cards(1000 * GIB)
    assert smallest_card(TARGET, "", 1000 * GIB, here.probe) is None
    assert here.asked == []
    assert smallest_card(TARGET, "", 150 * GIB, here.probe) is None
    assert here.asked


def test_where_the_model_cannot_be_probed_there_is_none() -> None:
    assert smallest_card(TARGET, "", GIB, lambda subjects: [None] * len(subjects)) is None


def test_a_card_on_which_it_does_not_fit_says_so(holding: Callable[..., Examination]) -> None:
    fit = fit_of(holding({"activations": 9_500}, fits=False))
    assert (fit.fits, fit.headroom_bytes) == (False, 10_000 - 1_000 - 9_500)
