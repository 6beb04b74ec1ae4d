"""What Markdown documents are made of: blocks of a bounded size, with a blank line between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memdoctor.reports.markdown.text import raw_html

LARGEST = 900 * 1024
"""Bytes of a document at most: GitHub takes a step summary of 1 MiB."""
MOST_ROWS = 20
_BAR = 20  # characters of the longest bar


def document(blocks: Iterable[str]) -> bytes:
    """The blocks that there are, as UTF-8; those that would make it too large are left out, and that is said."""
    kept: list[bytes] = []
    size = left_out = 0
    for block in filter(None, blocks):
        content = f"{block}\n".encode()
        if left_out or size + len(content) + 1 > LARGEST - 1024:
            left_out += 1
            continue
        kept.append(content)
        size += len(content) + 1
    if left_out:
        kept.append(f"*{left_out} more parts are left out: a summary on GitHub has room for 1 MiB.*\n".encode())
    return b"\n".join(kept)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, figures: str = "", most: int = MOST_ROWS) -> str:
    """A table of cells that are Markdown; ``figures`` has ``r`` for each column to set to the right.

    Empty without rows; of more than ``most`` it says how many are left out.
    """
    if not rows:
        return ""
    sides = ["---:" if figures[index : index + 1] == "r" else ":---" for index in range(len(head))]
    lines = [_line(head), _line(sides), *map(_line, rows[:most])]
    said = "\n".join(lines)
    if len(rows) > most:
        said += f"\n\n*{len(rows) - most} more rows are left out: they are in the JSON.*"
    return said


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def bar(size: int, largest: int) -> str:
    """A bar of text; at least a sliver of what is not nothing."""
    filled = round(_BAR * abs(size) / largest) if largest else 0
    return "█" * filled or ("▏" if size else "")


def details(summary: str, *blocks: str) -> str:
    """Blocks behind a line to click on, which is plain text; empty where they all are."""
    inside = "\n\n".join(filter(None, blocks))
    return f"<details>\n<summary>{raw_html(summary, 200)}</summary>\n\n{inside}\n\n</details>" if inside else ""


def items(lines: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {line}" for line in lines)
