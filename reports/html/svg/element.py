"""Elements of SVG, with everything in them escaped, and the two widths that each chart is drawn for."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup, escape

from memdoctor.reports.text import cut, plain

WIDE, NARROW = 880, 360  # units; the wide one is shown at 1.3 times on a desk, and its letters can be read on paper
_LETTER = 0.6  # of the font size: the width of a letter, about
FONT = 12


def element(name: str, *content: str, **attributes: object) -> Markup:
    """One element; ``class_`` is its class, and underscores in names of attributes are dashes."""
    written = "".join(
        f' {"class" if key == "class_" else key.replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(str(escape(plain(part) if not isinstance(part, Markup) else part)) for part in content)
    return Markup(f"<{name}{written}>{inner}</{name}>")


def text(words: str, x: float, y: float, **more: object) -> Markup:
    """Words at a place, in the colour of the page's text unless told."""
    return element("text", words, x=x, y=y, **{"font_size": FONT, "fill": "currentColor", **more})


def title(words: str) -> Markup:
    """What is shown where the pointer rests."""
    return element("title", cut(words, 300))


def room(width: float, size: float = FONT) -> int:
    """How many letters a width has room for."""
    return int(width / (size * _LETTER))


def picture(name: str, says: str, width: int, height: int, *content: Markup, links: bool = False) -> Markup:
    """A chart; ``says`` is its message in words, for those who do not see it. ``links``: there are some in it.

    What is inside of an image is not reached by those who are read to, so one with links in it is a group.
    """
    return element(
        "svg", *content, viewBox=f"0 0 {width} {height}", role="group" if links else "img",
        aria_label=f"{name}: {plain(says)}", class_="wide" if width == WIDE else "narrow",
        preserveAspectRatio="xMinYMin meet",
    )  # fmt: skip


def both(draw: Callable[[int], Markup]) -> Markup:
    """The chart for wide windows and for narrow ones; styles show one of them."""
    return Markup("").join(map(draw, (WIDE, NARROW)))


def _number(value: object) -> object:
    """Fractions of a unit with two digits, so that the same chart is the same text."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
