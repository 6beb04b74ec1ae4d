"""Writes docs/rules.md anew from the code: ``python docs/update_rules.py``. A test holds the two together."""

from __future__ import annotations

from pathlib import Path

from memdoctor.reports.explanation import markdown
from memdoctor.rules.pages import explain

DOCUMENT = Path(__file__).parent / "rules.md"


def text() -> str:
    """The document as the code has it."""
    return markdown(explain())


if __name__ == "__main__":
    DOCUMENT.write_text(text(), encoding="utf-8")
