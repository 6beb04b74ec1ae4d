"""Words are as wide as they are drawn, and what does not fit is cut or wrapped, whatever its letters are."""

from __future__ import annotations

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from memdoctor.reports.figures.lettering import BOLD, FONT, fitting, width_of, wrapped

WORDS = ["iiii", "WWWW", "bert.encoder.layer.11.attention", "20.65 GiB ✗"]
WIDE = ["W" * 10_000, "i" * 10_000, "模" * 500, "two words " * 500, "\u202e\x00" * 300]


def drawn_width(words: str, weight: str = "normal") -> float:
    """Inches of the ink at 72 points, from the glyphs that matplotlib draws."""
    box = TextPath((0, 0), words, size=72, prop=FontProperties(family=FONT, weight=weight)).get_extents()
    return float(box.width) / 72


@pytest.mark.parametrize("words", WORDS)
def test_words_are_as_wide_as_their_ink_and_the_space_around_it(words: str) -> None:
    space = width_of("WW", 72) / 4  # what the first and the last letter leave beside their ink is less than half of one
    assert drawn_width(words) <= width_of(words, 72) < drawn_width(words) + space


@pytest.mark.parametrize("words", WORDS)
def test_bold_words_are_no_wider_than_is_reckoned(words: str) -> None:
    assert drawn_width(words, "bold") <= BOLD * width_of(words, 72)


@pytest.mark.parametrize("words", WIDE)
def test_what_is_too_wide_is_cut_to_what_fits(words: str) -> None:
    cut = fitting(words, 2, 9)
    assert "…" in cut
    assert 1.7 < width_of(cut, 9) <= 2


def test_what_fits_is_left_as_it_is() -> None:
    assert fitting("net.layer", 2, 9) == "net.layer"
    assert fitting("", 2, 9) == ""
    assert wrapped("a few words", 2, 9, 1) == ["a few words"]
    assert wrapped("", 2, 9, 1) == []


@pytest.mark.parametrize("words", WIDE)
@pytest.mark.parametrize("most", [1, 2, 3])
def test_lines_are_no_wider_and_no_more_than_there_is_room_for(words: str, most: int) -> None:
    lines = wrapped(words, 2, 9, most)
    assert 0 < len(lines) <= most
    assert all(width_of(line, 9) <= 2 for line in lines)
    assert "…" in "".join(lines)
