"""The whole card as one bar at the peak: every part, what is free or missing, and the lines not to cross."""

from __future__ import annotations

from itertools import accumulate

from matplotlib.axes import Axes

from memdoctor.records import Budget, Diagnosis
from memdoctor.reports.figures.drawing import MARK, PAPER, SIZE, SOFT, bare, bytes_axis
from memdoctor.reports.figures.layout import SIDE, WIDTH
from memdoctor.reports.figures.lettering import fitting, width_of
from memdoctor.reports.palette import COLOURS, on
from memdoctor.units import format_bytes

LEFT = 0.3  # inches: half of the first tick's words
_FROM_ZERO = {"peak_allocated", "peak_reserved", "device_peak"}  # metrics that a bar from 0 shows
_BAR, _ROW = 0.6, 0.2  # inches: the bar, and each line of words over and under it
_BUDGET = "#0550ae"


def height_of(budgets: int) -> float:
    """Inches of :func:`capacity` with so many budgets, each of which has its line of words."""
    return _BAR + _ROW * (1 + budgets)


def budgets_shown(diagnosis: Diagnosis) -> list[Budget]:
    """Those that are lines of the bar: limits of peaks, not beyond its end."""
    whole = _whole(diagnosis)
    return [each for each in diagnosis.budgets if each.metric in _FROM_ZERO and each.limit_bytes <= whole]


def capacity(axes: Axes, diagnosis: Diagnosis) -> None:
    """Draw it; across is in bytes, upwards in inches from the middle of the bar."""
    total, free = diagnosis.device.total_bytes, diagnosis.breakdown.free
    whole, budgets = _whole(diagnosis), budgets_shown(diagnosis)
    inch = whole / (WIDTH - LEFT - SIDE)
    held = [(name, size) for name, size in diagnosis.breakdown.items() if name != "free"]
    begins = accumulate((size for _, size in held), initial=0)
    for (name, size), begin in zip(held, begins, strict=False):
        if size:
            axes.barh(0, size, left=begin, height=_BAR, color=COLOURS[name], edgecolor="white", linewidth=0.6)
            seen = min(size, max(total - begin, 0))  # what is beyond the card is hatched
            label = f"{name.replace('_', ' ')} {format_bytes(size)}"
            _inside(axes, begin, seen, (label, format_bytes(size)), on(COLOURS[name]), inch)
    if free > 0:
        axes.barh(0, free, left=total - free, height=_BAR, color="white", edgecolor=SOFT, linestyle=(0, (4, 3)))
        _inside(axes, total - free, free, (f"free {format_bytes(free)}",), SOFT, inch)
    elif free < 0:
        axes.barh(0, -free, left=total, height=_BAR, color="none", edgecolor=MARK, hatch="////", linewidth=1.2)
    beyond = f"; hatched: {format_bytes(-free)} too much" if free < 0 else ""
    _line(axes, total, f"there is {format_bytes(total)}{beyond}", MARK, row=0, whole=whole)
    for row, budget in enumerate(budgets, start=1):
        words = f"{fitting(budget.name, 2.5, SIZE)}: {format_bytes(budget.limit_bytes)}"
        _line(axes, budget.limit_bytes, words, _BUDGET, row=row, whole=whole)
    axes.set_xlim(0, whole)
    axes.set_ylim(-_BAR / 2 - _ROW * len(budgets), _BAR / 2 + _ROW)
    axes.set_yticks([])
    bytes_axis(axes.xaxis, whole)
    bare(axes)


def _whole(diagnosis: Diagnosis) -> int:
    """Bytes from the left end of the bar to the right one: the card, or what is needed where that is more."""
    total = diagnosis.device.total_bytes
    return max(total, total - diagnosis.breakdown.free)


def _inside(axes: Axes, begin: int, size: int, labels: tuple[str, ...], colour: str, inch: float) -> None:
    """The first of the labels for which a part has room, in its middle."""
    shown = next((label for label in labels if width_of(label, SIZE) + 0.12 < size / inch), None)
    if shown is not None:
        axes.text(begin + size / 2, 0, shown, ha="center", va="center", fontsize=SIZE, color=colour)


def _line(axes: Axes, at: int, words: str, colour: str, *, row: int, whole: int) -> None:
    """A line across the bar; its words are above it in row 0, else in a row of their own below."""
    low, high = (-_BAR / 2 - _ROW * row, _BAR / 2) if row else (-_BAR / 2, _BAR / 2 + 0.08)
    axes.plot([at, at], [low, high], color=colour, linewidth=1.6, linestyle="--" if row else "-", clip_on=False)
    left = at > whole / 2
    y = -_BAR / 2 - _ROW * (row - 0.4) if row else _BAR / 2 + _ROW / 2
    axes.annotate(
        words, (at, y), xytext=(-4 if left else 4, 0), textcoords="offset points", ha="right" if left else "left",
        va="center", fontsize=SIZE, color=colour, bbox=PAPER, zorder=3,
    )  # fmt: skip
