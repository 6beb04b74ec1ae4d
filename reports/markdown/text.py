"""Text that may hold anything, made safe for GitHub: it names nobody, links nowhere and is no HTML.

GitHub looks for mentions (``@team``), references (``#123``, ``GH-123``) and addresses in what Markdown renders, so a
backslash does not help; a space of no width after the sign does. In code it does not look for them.
"""

from __future__ import annotations

import html
import re

from memdoctor.names import LONGEST, cut

LONGEST_TEXT = 2_000
_APART = "&#8203;"  # ZERO WIDTH SPACE
_MARKS = re.compile(r"[\\`*_\[\]~$|]|^[-+=]")
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")  # as a list begins
_LINKS = re.compile(r"@|#|\bGH-|://|\bwww\.", re.IGNORECASE)
_NAMED = {"|": "&#124;", "\\": "&#92;", "`": "&#96;"}  # a table splits at these, or ends code, before it looks at marks


def text(said: str, longest: int = LONGEST_TEXT) -> str:
    """A sentence on one line, for paragraphs and cells."""
    marked = _MARKS.sub(_escaped, html.escape(_clean(said, longest), quote=False))
    marked = _NUMBERED.sub(r"\1\\\2", marked)
    return _apart(marked)


def _escaped(mark: re.Match[str]) -> str:
    return _NAMED.get(mark[0], f"\\{mark[0]}")


def raw_html(said: str, longest: int = LONGEST) -> str:
    """A sentence on one line within an HTML element of ours, where Markdown's marks mean nothing."""
    return _apart(html.escape(_clean(said, longest)))


def code(name: str, longest: int = LONGEST) -> str:
    """A name as code, on one line; empty where there is none. For a table, which takes care of its bars."""
    said = _clean(name, longest).replace("`", "'").strip()
    return f"`{said}`" if said else ""


def fence(lines: str, language: str = "", longest: int = 4_000) -> str:
    """Lines to copy."""
    kept = "\n".join(_printable(line.replace("\t", "    ")) for line in lines.splitlines())
    kept = kept if len(kept) <= longest else f"{kept[:longest]}\n..."
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", kept)), default=0))
    return f"{ticks}{language}\n{kept}\n{ticks}"


def _apart(said: str) -> str:
    """Signs that GitHub would make a link of, told from what follows. Entities are not references."""
    return _LINKS.sub(_kept_apart, said)


def _kept_apart(sign: re.Match[str]) -> str:
    is_entity = sign[0] == "#" and sign.string[: sign.start()].endswith("&")
    if is_entity:
        return sign[0]
    return f":{_APART}//" if sign[0] == "://" else f"{sign[0]}{_APART}"


def _clean(said: str, longest: int) -> str:
    return cut(_printable(" ".join(said.split())), longest)


def _printable(line: str) -> str:
    """Without control characters, and marks that turn the direction of writing."""
    return "".join(character if character.isprintable() else "?" for character in line)
