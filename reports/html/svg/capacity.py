"""The whole card as one bar: every part at the peak, what is free or missing, and the lines not to cross."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from markupsafe import Markup

from memdoctor.records import Breakdown, Budget, Device, Diagnosis
from memdoctor.reports.html.svg.element import both, element, picture, room, text, title
from memdoctor.reports.palette import COLOURS, on
from memdoctor.units import format_bytes

_TOP, _HEIGHT, _ALL = 26, 44, 96
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
    shapes += list(_lines(total, budgets, at, width))
    says = ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, _, size in parts_of(breakdown))
    missing = f"{format_bytes(-free)} more than there is" if free < 0 else f"{format_bytes(free)} free"
    return picture("The card at the peak", f"{says}; {missing} of {format_bytes(total)}", width, _ALL, *shapes)


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
    elif len(words) <= room(width - 8):
        yield text(words, x + 5, _TOP + _HEIGHT / 2 + 4)


def _lines(total: int, budgets: Sequence[Budget], at: Callable[[int], float], width: int) -> Iterator[Markup]:
    yield from _line(at(total), f"the card: {format_bytes(total)}", width, below=False)
    shown = [budget for budget in budgets if budget.metric in _FROM_ZERO]
    for budget in shown:
        words = f"budget {budget.name}: {format_bytes(budget.limit_bytes)}"
        if at(budget.limit_bytes) <= width:
            yield from _line(at(budget.limit_bytes), words, width, below=True)


def _line(x: float, words: str, width: int, *, below: bool) -> Iterator[Markup]:
    x = min(x, width - 1.0)
    yield element("line", x1=x, x2=x, y1=_TOP - 8, y2=_TOP + _HEIGHT + 8, class_="budget" if below else "capacity")
    end = x > width / 2
    y = _TOP + _HEIGHT + 20 if below else _TOP - 10
    yield text(words, x - 2 if end else x + 2, y, text_anchor="end" if end else "start")
