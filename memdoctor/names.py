"""Names that are longer than anyone reads."""

from __future__ import annotations

LONGEST = 80
_GAP = "..."


def cut(name: str, longest: int = LONGEST) -> str:
    """A name of at most ``longest`` characters, without its middle: both of its ends tell which it is."""
    if len(name) <= longest:
        return name
    half, odd = divmod(longest - len(_GAP), 2)
    return f"{name[: half + odd]}{_GAP}{name[-half:]}"
