"""The search for the edge against cards made up here: where the prediction is right, too high, too low, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from memdoctor.planning import edge_search, predicted_edge, run_searches
from memdoctor.records import PhaseLine, Prediction

CAP = 1000


class Card:
    """A card on which the batches fit of which ``fits`` says so, and what it was asked for, round by round."""

    def __init__(self, fits: Callable[[int], bool]) -> None:
        self.fits = fits
        self.rounds: list[list[int]] = []

    def search(self, predicted: int, predict: Callable[[int], int | None] = lambda _: None) -> int:
        """The edge that is found."""

        def probe(questions: Sequence[tuple[str, int]]) -> list[bool]:
            self.rounds.append([batch for _, batch in questions])
            return [self.fits(batch) for _, batch in questions]

        return run_searches({"card": edge_search(predicted, CAP, predict)}, probe)["card"]

    @property
    def asked(self) -> list[int]:
        """Every batch that was probed."""
        return [batch for batches in self.rounds for batch in batches]


def up_to(largest: int) -> Callable[[int], bool]:
    """Batches up to the largest fit."""
    return lambda batch: batch <= largest


def test_a_right_prediction_takes_two_probes_at_once() -> None:
    card = Card(up_to(42))
    assert card.search(42) == 42
    assert card.rounds == [[42, 43]]


def test_a_prediction_too_high_steps_down_in_strides_that_double_and_then_halves() -> None:
    card = Card(up_to(42))
    assert card.search(50) == 42
    assert card.rounds == [[50, 51], [49], [47], [43], [35], [39], [41], [42]]


def test_a_prediction_too_low_steps_up() -> None:
    card = Card(up_to(42))
    assert card.search(38) == 42
    assert card.rounds == [[38, 39], [40], [42], [46], [44], [43]]


def test_a_better_prediction_from_what_was_probed_is_taken_at_its_word_and_checked() -> None:
    card = Card(up_to(800))
    assert card.search(100, lambda batch: {101: 800}[batch]) == 800
    assert card.rounds == [[100, 101], [800, 801]]


def test_a_prediction_that_contradicts_what_was_probed_is_not_followed() -> None:
    card = Card(up_to(42))
    assert card.search(40, lambda _: 20) == 42
    assert card.rounds == [[40, 41], [42], [44], [43]]


def test_predictions_that_creep_are_given_up() -> None:
    card = Card(up_to(900))
    assert card.search(1, lambda batch: batch) == 900
    assert len(card.rounds) < 30


def test_where_not_even_one_fits_one_probe_says_so() -> None:
    card = Card(up_to(0))
    assert card.search(0) == 0
    assert card.rounds == [[1]]


def test_a_prediction_of_some_where_none_fits_ends_at_none() -> None:
    card = Card(up_to(0))
    assert card.search(3) == 0
    assert card.asked[-1] == 1


def test_where_all_fit_the_largest_ever_probed_is_the_answer() -> None:
    card = Card(up_to(10 * CAP))
    assert card.search(5000) == CAP
    assert card.rounds == [[CAP]]


@pytest.mark.parametrize("largest", [0, 1, 2, 41, 42, 43, 500, CAP - 1, CAP])
@pytest.mark.parametrize("predicted", [0, 1, 2, 42, 999, CAP, 4000])
def test_whatever_was_predicted_the_edge_is_found_and_was_probed_on_both_sides(largest: int, predicted: int) -> None:
    card = Card(up_to(largest))
    assert card.search(predicted) == largest
    assert largest in card.asked or largest == 0
    assert largest + 1 in card.asked or largest == CAP
    assert len(card.asked) == len(set(card.asked))


def test_an_edge_that_is_not_the_only_one_is_still_an_edge() -> None:
    card = Card(lambda batch: batch <= 40 or batch in (44, 45))
    found = card.search(42)
    assert found in (40, 45)
    assert card.fits(found)
    assert not card.fits(found + 1)


def test_searches_go_side_by_side() -> None:
    rounds: list[list[tuple[str, int]]] = []
    edges = {"one": 7, "two": 9, "three": 1}

    def probe(questions: Sequence[tuple[str, int]]) -> list[bool]:
        rounds.append(list(questions))
        return [batch <= edges[name] for name, batch in questions]

    found = run_searches({name: edge_search(7, CAP, lambda _: 9) for name in edges}, probe)
    assert found == edges
    assert rounds[0] == [("one", 7), ("one", 8), ("two", 7), ("two", 8), ("three", 7), ("three", 8)]
    assert rounds[1][:2] == [("two", 9), ("two", 10)]
    assert all(name != "one" for questions in rounds[1:] for name, _ in questions)


class Line:
    """A model in which batches fit as told; it counts what it was asked."""

    method = "by hand"

    def __init__(self, fits: Callable[[int], bool]) -> None:
        self._fits = fits
        self.asked: list[int] = []

    def predict(self, batch: int) -> Prediction:
        """Nobody asks."""
        raise NotImplementedError

    def fits(self, batch: int) -> bool:
        """As told."""
        self.asked.append(batch)
        return self._fits(batch)


def lines(fixed: int, each: int) -> list[PhaseLine]:
    """One phase, and another that is the same at every batch."""
    return [
        PhaseLine(step=1, name="forward", fixed_bytes=fixed, per_sample_bytes=each),
        PhaseLine(step=1, name="optimizer", fixed_bytes=fixed, per_sample_bytes=0),
    ]


def test_the_largest_of_several_batches_that_fit_is_predicted() -> None:
    model = Line(lambda batch: batch <= 5 or batch == 7)
    assert predicted_edge(model, lines(100, 10), 199, CAP) == 7  # 100 + 9 x 10 is within, 10 x 10 beyond
    assert model.asked == [9, 8, 7]


def test_far_below_what_could_be_allocated_strides_grow_and_the_rest_is_halved() -> None:
    model = Line(up_to(123))
    assert predicted_edge(model, lines(0, 1), 900, CAP) == 123
    assert len(model.asked) < 40


def test_nothing_is_replayed_where_what_is_allocated_says_it_all() -> None:
    model = Line(up_to(CAP))
    assert predicted_edge(model, lines(200, 10), 199, CAP) == 0
    assert model.asked == []


def test_memory_that_does_not_grow_bounds_nothing() -> None:
    assert predicted_edge(Line(up_to(2 * CAP)), lines(100, 0), 199, CAP) == CAP
    assert predicted_edge(Line(up_to(0)), lines(100, 0), 199, CAP) == 0
