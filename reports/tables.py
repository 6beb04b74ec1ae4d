"""Plain tables for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 200  # where nobody looks at the width, lines need not be cut


def console() -> Console:
    """Standard output: colours on a terminal unless ``NO_COLOR`` is set, plain elsewhere."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, highlight=False, soft_wrap=False, emoji=False, markup=False)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, keep: int) -> None:
    """Print the first ``keep`` columns; columns that hold figures are set to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns[:keep]):
        figures = bool(rows) and all(row[index][:1].isdigit() for row in rows)
        table.add_column(name, justify="right" if figures else "left", overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*map(Text, row[:keep]))
    console().print(table)
