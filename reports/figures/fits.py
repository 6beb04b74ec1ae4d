"""The figure of a fit: a table in colours, the largest batch by length and setting, or by card."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from memdoctor.levers.wording import in_words
from memdoctor.records import Edge, Fit
from memdoctor.reports.figures.drawing import bare
from memdoctor.reports.figures.layout import Panel
from memdoctor.reports.figures.lettering import fitting
from memdoctor.units import format_bytes

_ROW, _NAMES = 0.4, 2.4  # inches


def largest_batches(fit: Fit) -> tuple[str, str, Panel]:
    """A headline, what was probed, and the table."""
    model = fit.workload.model
    if fit.cards:
        names = [f"{card.gpu}, {format_bytes(card.total_bytes)}" for card in fit.cards]
        rows = [(name, [card.edge]) for name, card in zip(names, fit.cards, strict=True)]
        told = f"{model}, {fit.workload.seq_length} tokens; simulated"
        return "The largest batch, by card", told, _panel(["largest batch"], rows)
    lengths = sorted({cell.seq_length for cell in fit.cells})
    settings = list(dict.fromkeys(in_words(cell.change) or "as given" for cell in fit.cells))
    found = {(in_words(cell.change) or "as given", cell.seq_length): cell.edge for cell in fit.cells}
    rows = [(name, [found.get((name, length)) for length in lengths]) for name in settings]
    told = f"{model}, by length and setting; simulated"
    return f"The largest batch that fits {fit.device.name}", told, _panel([f"{n} tokens" for n in lengths], rows)


def _panel(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Edge | None]]]) -> Panel:
    height = _ROW * max(len(rows), 1)
    return Panel("", height, lambda axes: _table(axes, columns, rows), left=_NAMES, below=0.35)


def _table(axes: Axes, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Edge | None]]]) -> None:
    largest = max((edge.largest_batch or 0 for _, edges in rows for edge in edges if edge), default=0)
    for row, (_, edges) in enumerate(rows):
        for column, edge in enumerate(edges):
            share = (edge.largest_batch or 0) / largest if edge and largest else 0
            colour = (1 - 0.3 * share, 1 - 0.12 * share, 1 - 0.25 * share)
            axes.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor="white", linewidth=1.5))
            axes.text(column + 0.5, row + 0.5, _told(edge), ha="center", va="center", fontsize=9)
    axes.set_xlim(0, len(columns))
    axes.set_ylim(max(len(rows), 1), 0)
    axes.set_xticks([n + 0.5 for n in range(len(columns))], columns)
    axes.set_yticks([n + 0.5 for n in range(len(rows))], [fitting(name, _NAMES - 0.25, 9) for name, _ in rows])
    bare(axes)


def _told(edge: Edge | None) -> str:
    if edge is None:
        return "not probed"
    if edge.largest_batch is None:
        return "not even 1"
    peak = f", {format_bytes(edge.peak.reserved_bytes)}" if edge.peak else ""
    return f"{edge.largest_batch:,}{' or more' if edge.capped else ''}{peak}"
