"""How wide words are in the font that is drawn with: what does not fit is cut or wrapped, whatever its letters are."""

from __future__ import annotations

import textwrap
from functools import cache

from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font

from memdoctor.reports.text import cut

FONT = "DejaVu Sans"
BOLD = 1.2  # a bold letter is at most this many times as wide
_SCALE = 100  # points, at 72 dots an inch
_BOX = 1.2  # of the size: no less than the box that is drawn for a glyph that the font lacks
_LEAST = 3  # letters that are always left
_FEWER = 0.95  # of the letters in a line, where one was too wide


def width_of(words: str, size: float) -> float:
    """Inches, without kerning, of one line at a ``size`` in points."""
    return sum(_advance(letter) for letter in words) * size / 72


def fitting(words: object, inches: float, size: float) -> str:
    """In one line and cut in the middle to so many inches, without characters that nobody sees."""
    most = max(int(inches / (_advance("i") * size / 72)), _LEAST)  # more than fit, of most words
    text = cut(words, most)
    while len(text) > _LEAST and width_of(text, size) > inches:
        text = cut(words, max(min(len(text) - 1, int(len(text) * inches / width_of(text, size))), _LEAST))
    return text


def wrapped(words: str, inches: float, size: float, lines: int) -> list[str]:
    """In lines of so many inches; what is more than so many ``lines`` is cut from the middle of the words."""
    letters = max(int(inches / (_advance("s") * size / 72)), _LEAST)  # a narrow one
    while True:
        found = textwrap.wrap(cut(words, letters * lines), letters)
        while len(found) > lines:  # short last words may need one more
            found = textwrap.wrap(cut(words, sum(map(len, found)) - max(letters // 4, 1)), letters)
        if letters == _LEAST or all(width_of(line, size) <= inches for line in found):
            return found
        letters = max(int(letters * _FEWER), _LEAST)


@cache
def _advance(letter: str) -> float:
    """From the begin of a letter to the next, in parts of the font's size (``linearHoriAdvance``: 16.16, unhinted)."""
    font = _font()
    index = font.get_char_index(ord(letter))
    if not index:
        return _BOX
    return float(font.load_glyph(index).linearHoriAdvance) / 65536 / _SCALE


@cache
def _font() -> FT2Font:
    """One of our own: matplotlib's are at the size of what they drew last."""
    font = FT2Font(findfont(FontProperties(family=FONT)))
    font.set_size(_SCALE, 72)
    return font
