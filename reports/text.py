"""Text from the user's files, made fit to be read: cut, and without what would turn a line around."""

from __future__ import annotations

import unicodedata

from memdoctor import names

MOST = 120  # characters of a name that is shown
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, marks of direction, lone surrogates, line and paragraph ends


def plain(text: object) -> str:
    """Without characters that nobody sees; line ends stay, each as one."""
    lines = str(text).expandtabs(4).splitlines() or [""]
    return "\n".join("".join("\ufffd" if unicodedata.category(c) in _UNSEEN else c for c in line) for line in lines)


def cut(text: object, most: int = MOST) -> str:
    """In one line, with an ellipsis in the middle where it is longer than ``most``."""
    return names.cut(" ".join(plain(text).split("\n")), most, "\u2026")


def exact(size: int) -> str:
    """Every byte, in groups of three."""
    return f"{size:,} B"


def sentence(text: str) -> str:
    """With a capital first letter."""
    return text[:1].upper() + text[1:]
