"""Panels one below the other under the words that go with them, each as high as it needs to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from memdoctor.reports.figures.drawing import DPI, GOOD, MARK, TEXT
from memdoctor.reports.figures.lettering import BOLD, wrapped
from memdoctor.reports.palette import COLOURS

WIDTH = 9.0  # inches: 1800 pixels
SIDE = 0.15  # inches, left and right of everything
_HEADLINE, _WORDS, _KEY = 15, 9, 8  # points
_TITLE = 0.38  # inches: the title of a panel, and the space above it
_KEY_COLUMNS, _KEY_ROW = 4, 0.18
Draw = Callable[[Axes], None]


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of a canvas.

    ``height`` is that of its axes, ``left`` the room for labels beside them, ``below`` that for ticks, all in inches;
    ``key`` names the parts that it has in colour, with what is said of each.
    """

    title: str
    height: float
    draw: Draw
    left: float = 0.65
    below: float = 0.3
    key: Mapping[str, str] = field(default_factory=dict)

    @property
    def inches(self) -> float:
        """From the space above the title to the end of the key."""
        rows = -(-len(self.key) // _KEY_COLUMNS)
        return _TITLE + self.height + self.below + rows * _KEY_ROW

    def place(self, figure: Figure, top: float) -> None:
        """Draw it on the figure, so many inches below its upper edge."""
        _, height = figure.get_size_inches()
        bottom = 1 - (top + _TITLE + self.height) / height
        across = WIDTH - self.left - SIDE
        figure.text(SIDE / WIDTH, 1 - (top + 0.3) / height, self.title, fontsize=10, fontweight="bold", va="bottom")
        self.draw(figure.add_axes((self.left / WIDTH, bottom, across / WIDTH, self.height / height)))
        if not self.key:
            return
        handles: list[Artist] = [Patch(facecolor=COLOURS[name], label=self.key[name]) for name in _by_rows(self.key)]
        figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(SIDE / WIDTH, bottom - self.below / height),
            ncols=_KEY_COLUMNS, fontsize=_KEY, frameon=False, borderpad=0, borderaxespad=0, handlelength=1,
            handletextpad=0.5, columnspacing=1.6, labelspacing=0.35,
        )  # fmt: skip


def _by_rows(names: Mapping[str, str]) -> list[str]:
    """So that a legend, which fills column after column, has them in order in its rows."""
    return [name for column in range(_KEY_COLUMNS) for name in list(names)[column::_KEY_COLUMNS]]


def stacked(headline: str, told: Sequence[str], panels: Sequence[Panel], *, good: bool | None = None) -> Figure:
    """The canvas: a headline, in green or red where it is ``good`` or not, what is told in lines, and the panels."""
    across = WIDTH - 2 * SIDE
    heads = wrapped(headline, across, _HEADLINE * BOLD, 2)
    lines = [line for part in told for line in wrapped(part, across, _WORDS, 3)]
    begin = 0.1 + 0.3 * len(heads)
    top = begin + 0.19 * len(lines) + (0.1 if heads or lines else 0)
    height = top + sum(panel.inches for panel in panels) + 0.1
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    colour = TEXT if good is None else GOOD if good else MARK
    left = SIDE / WIDTH
    figure.text(left, 1 - 0.1 / height, "\n".join(heads), fontsize=_HEADLINE, fontweight="bold", color=colour, va="top")
    figure.text(left, 1 - begin / height, "\n".join(lines), fontsize=_WORDS, va="top", linespacing=1.4)
    for panel in panels:
        panel.place(figure, top)
        top += panel.inches
    return figure
