"""What all figures share: fonts, words that are taken as they are, axes of bytes, and files that are always the same.

Figures are made by objects, never by pyplot: no state, no window, no backend to choose.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from memdoctor.reports.figures.lettering import FONT
from memdoctor.reports.figures.loading import quiet
from memdoctor.units import GIB, KIB, MIB

DPI = 200  # 9 inches are 1800 pixels; shown at half of that, 9 points are as high as 12.5 pixels
SIZE = 8.5  # points, of what is written on and beside bars
PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}  # behind words that cross a line
TEXT, SOFT, LINE, MARK, GOOD, BAND = "#1b1f24", "#57606a", "#d0d7de", "#b00020", "#0a5c2b", "#f3f5f8"
_SETTINGS: dict[Any, Any] = {
    "font.family": FONT, "font.size": 9, "text.parse_math": False, "axes.edgecolor": LINE,
    "axes.linewidth": 0.8, "axes.labelcolor": TEXT, "text.color": TEXT, "xtick.color": TEXT, "ytick.color": TEXT,
    "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left", "hatch.linewidth": 0.6,
    "svg.hashsalt": "memdoctor", "svg.fonttype": "path", "savefig.facecolor": "white", "figure.facecolor": "white",
    "axes.formatter.useoffset": False,
}  # fmt: skip


@contextmanager
def style() -> Iterator[None]:
    """Our settings, whatever the user's matplotlibrc says; glyphs that the font lacks are boxes, and no warning."""
    with quiet(), mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def file_of(figure: Figure, kind: str) -> bytes:
    """The figure as ``png`` or ``svg``: the same bytes for the same figure."""
    out = io.BytesIO()
    metadata: dict[str, Any] = {"Software": None} if kind == "png" else {"Date": None, "Creator": "memdoctor"}
    figure.savefig(out, format=kind, dpi=DPI, metadata=metadata)
    return out.getvalue()


def bare(axes: Axes, *keep: str) -> None:
    """Without the frame but for these sides."""
    for side, spine in axes.spines.items():
        spine.set_visible(side in keep)
    axes.tick_params(length=0 if not keep else 3)


def bytes_axis(axis: Any, highest: int) -> None:
    """Ticks at round numbers of GiB, MiB, KiB or bytes."""
    units = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B"))
    unit, name = next((pair for pair in units if highest >= pair[0]), units[-1])
    ticks = [tick * unit for tick in MaxNLocator(nbins=6, steps=[1, 2, 5, 10]).tick_values(0, highest / unit)]
    axis.set_ticks([tick for tick in ticks if 0 <= tick <= highest])
    axis.set_major_formatter(FuncFormatter(lambda size, _: f"{size / unit:g} {name}"))
