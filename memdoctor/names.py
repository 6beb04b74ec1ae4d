"""Names that are longer than anyone reads."""

from __future__ import annotations

LONGEST = 80


def cut(name: str, longest: int = LONGEST, gap: str = "...") -> str:
    """A name of at most ``longest`` characters, without its middle: both of its ends tell which it is."""
    if len(name) <= longest:
        return name
    half, odd = divmod(longest - len(gap), 2)
    return f"{name[: half + odd]}{gap}{name[-half:]}"
