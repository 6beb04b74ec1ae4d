"""The whole card as one bar: every part at the peak, what is free or missing, and the lines not to cross."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

from markupsafe import Markup

from memdoctor.records import Breakdown, Budget, Device, Diagnosis
from memdoctor.reports.html.svg.element import FONT, both, element, picture, room, text, title
from memdoctor.reports.palette import COLOURS, on
from memdoctor.reports.text import cut
from memdoctor.units import format_bytes

_TOP, _HEIGHT, _UNDER, _LINE = 26, 38, 26, 16  # above the bar, the bar, below it, and each further budget there
_BOLD = 1.2 * FONT  # letters of class halo are bold, and wider
_BEYOND, _FEWEST, _MOST = ", beyond \u2192", 7, 40  # words, and letters of a name that are shown
_FROM_ZERO = {"peak_allocated", "peak_reserved", "device_peak"}  # metrics that the bar shows, from its left end on


def capacity_bar(diagnosis: Diagnosis) -> Markup:
    """The bar; its parts sum to the card, and where it does not fit they go on beyond it."""
    return card_bar(diagnosis.breakdown, diagnosis.device, diagnosis.budgets)


def card_bar(breakdown: Breakdown, device: Device, budgets: Sequence[Budget] = (), whole: int = 0) -> Markup:
    """The bar of any card; ``whole`` is how many bytes its full width is, where several are to one scale."""
    widest = max(whole, device.total_bytes, device.total_bytes - breakdown.free)
    return both(lambda width: _draw(breakdown, device, budgets, widest, width))


def parts_of(breakdown: Breakdown) -> list[tuple[str, int, int]]:
    """Name, first byte and size of every part that holds anything, from the left."""
    held = [(name, size) for name, size in breakdown.items() if name != "free"]
    begins = accumulate((size for _, size in held), initial=0)
    return [(name, begin, size) for (name, size), begin in zip(held, begins, strict=False) if size]


def _draw(breakdown: Breakdown, device: Device, budgets: Sequence[Budget], whole: int, width: int) -> Markup:
    total, free = device.total_bytes, breakdown.free

    def at(size: int) -> float:
        return width * size / whole

    shapes = [_part(name, at(begin), at(size), size) for name, begin, size in parts_of(breakdown)]
    shapes += list(_rest(free, at(total - max(free, 0)), at(abs(free))))
    shapes += list(_card(total, free, at, width))
    shown = _in_rows(budgets, whole)
    shapes += [
        _upright(at(budget.limit_bytes), "budget", _row(row) + 2)
        for row, budget in enumerate(shown)
        if budget.limit_bytes <= whole
    ]
    shapes += [_free_words(free, at(total - free), at(free))] if free > 0 else []
    shapes += [_budget_words(budget, row, at, width) for row, budget in enumerate(shown)]
    says = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, _, size in parts_of(breakdown))
    missing = f"{format_bytes(-free)} more than there is" if free < 0 else f"{format_bytes(free)} free"
    height = _TOP + _HEIGHT + _UNDER + _LINE * max(len(shown) - 1, 0)
    return picture("The card at the peak", f"{says}; {missing} of {format_bytes(total)}", width, height, *shapes)


def _part(name: str, x: float, width: float, size: int) -> Markup:
    words = f"{name.replace('_', ' ')} {format_bytes(size)}"
    colour = COLOURS[name]
    box = element(
        "rect", title(f"{words} ({size:,} B)"), x=x, y=_TOP, width=width, height=_HEIGHT, fill=colour,
        stroke="var(--back)", stroke_width=0.75,
    )  # fmt: skip
    shown = next((label for label in (words, format_bytes(size)) if len(label) <= room(width - 8)), "")
    return box + (text(shown, x + 5, _TOP + _HEIGHT / 2 + 4, fill=on(colour)) if shown else "")


def _rest(free: int, x: float, width: float) -> Iterator[Markup]:
    words = f"free {format_bytes(free)}" if free >= 0 else f"missing {format_bytes(-free)}"
    kind = "free" if free >= 0 else "missing"
    yield element("rect", title(words), x=x, y=_TOP, width=width, height=_HEIGHT, class_=kind)
    if free < 0:
        stripes = [f"M{x + step:.1f} {_TOP + _HEIGHT}l12 -{_HEIGHT}" for step in range(0, max(int(width) - 12, 0), 12)]
        yield element("path", d="".join(stripes), class_="stripes")


def _free_words(free: int, x: float, width: float) -> Markup:
    """After the lines, which may go through the part that is free."""
    words = f"free {format_bytes(free)}"
    fits = len(words) <= room(width - 8)
    return text(words, x + 5, _TOP + _HEIGHT / 2 + 4, class_="halo") if fits else Markup("")


def _card(total: int, free: int, at: Callable[[int], float], width: int) -> Iterator[Markup]:
    """Where the card ends; what is missing is told beside it, where there is room for both."""
    x, words = min(at(total), width - 1.0), f"the card: {format_bytes(total)}"
    missing = f"{format_bytes(-free)} missing"
    yield _upright(x, "capacity", _TOP + _HEIGHT + 8)
    if free >= 0:
        yield _beside(x, words, _TOP - 10, width)
    elif len(words) <= room(x - 4) and len(missing) <= room(width - x - 4):
        yield text(words, x - 4, _TOP - 10, text_anchor="end")
        yield text(missing, x + 4, _TOP - 10, font_weight="bold")
    else:
        yield text(f"{words}, {missing}", width, _TOP - 10, text_anchor="end")


def _in_rows(budgets: Sequence[Budget], whole: int) -> list[Budget]:
    """From the middle to both ends: the words of one are then never where the line of a later one goes down."""
    shown = [budget for budget in budgets if budget.metric in _FROM_ZERO]
    left = [budget for budget in shown if 2 * budget.limit_bytes <= whole]
    right = [budget for budget in shown if 2 * budget.limit_bytes > whole]
    by_limit = attrgetter("limit_bytes", "name")
    return sorted(left, key=by_limit, reverse=True) + sorted(right, key=by_limit)


def _row(number: int) -> int:
    return _TOP + _HEIGHT + 20 + number * _LINE


def _budget_words(budget: Budget, row: int, at: Callable[[int], float], width: int) -> Markup:
    """Words in a row of their own; those of a budget beyond the bar say so."""
    x, limit = at(budget.limit_bytes), format_bytes(budget.limit_bytes)
    beyond = x > width
    letters = room(width if beyond else max(x, width - x) - 3, _BOLD) - len(f"budget : {limit}")
    name = cut(budget.name, min(max(letters - (len(_BEYOND) if beyond else 0), _FEWEST), _MOST))
    if beyond:
        return text(f"budget {name}: {limit}{_BEYOND}", width, _row(row), text_anchor="end", class_="halo")
    return _beside(x, f"budget {name}: {limit}", _row(row), width)


def _upright(x: float, kind: str, end: float) -> Markup:
    return element("line", x1=x, x2=x, y1=_TOP - 8, y2=end, class_=kind)


def _beside(x: float, words: str, y: float, width: int) -> Markup:
    end = x > width / 2
    return text(words, x - 3 if end else x + 3, y, text_anchor="end" if end else "start", class_="halo")
