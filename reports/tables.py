"""Plain tables for the terminal."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

LABEL = 7  # columns of the label at the left edge
_PIPE_WIDTH = 200  # of tables, where nobody looks at the width


class _Console(Console):
    """Leaves it to the command line what it means that the reader of a pipe is gone; rich would end with 1."""

    def on_broken_pipe(self) -> None:
        """Called while the BrokenPipeError is handled."""
        raise  # noqa: PLE0704 - that error


def console() -> Console:
    """Standard output: colours on a terminal unless ``NO_COLOR`` is set, plain elsewhere."""
    return _Console(width=None if _has_width() else _PIPE_WIDTH, highlight=False, emoji=False, markup=False)


def print_labelled(out: Console, label: str, text: str, *, style: str = "bold", indent: int = 8) -> None:
    """A label and its text, wrapped under itself where there is a width to keep to, and whole where there is none."""
    label, text = clean(label), clean(text)
    first = f"{label:<{indent}}"
    width = max(out.width, 2 * indent) if _has_width() else sys.maxsize
    lines = textwrap.wrap(first + text, width, subsequent_indent=" " * indent, break_on_hyphens=False) or [first]
    rest = "\n".join([lines[0][len(first) :], *lines[1:]])
    out.print(Text.assemble((lines[0][: len(first)], style), rest), soft_wrap=True)


def _has_width() -> bool:
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, keep: int) -> None:
    """Print the first ``keep`` columns; columns of figures, and of dashes where there is none, are set to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns[:keep]):
        figures = bool(rows) and all(row[index][:1].isdigit() or row[index] == "-" for row in rows)
        table.add_column(name, justify="right" if figures else "left", overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row[:keep]))
    console().print(table)


def grid() -> Table:
    """A table without lines whose first column is the label."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(min_width=LABEL, no_wrap=True)
    return table


def label(text: str) -> Text:
    """The label at the left edge."""
    return Text(text, style="bold")


def clean(text: str) -> str:
    """Text that may hold what a file held: control characters would command the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def symbol(wanted: str, plain: str) -> str:
    """``wanted`` where standard output's encoding has it, else ``plain``."""
    try:
        wanted.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return plain
    return wanted
