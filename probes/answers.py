"""What a library's answer must look like to be one; what does not is a ValueError, of which the door makes Unknown."""

from __future__ import annotations

from typing import Any

UNNAMED = "a card without a name"


def whole(value: Any) -> int:
    """A count or a size."""
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def text(value: Any) -> str:
    """Text with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"the answer is {value!r}")
    return value.strip()


def card_name(value: Any) -> str:
    """A card's name; one that has none can be used all the same."""
    return UNNAMED if isinstance(value, str) and not value.strip() else text(value)


def capability(pair: Any) -> str:
    """``(7, 5)`` is ``7.5``."""
    major, minor = pair
    return f"{whole(major)}.{whole(minor)}"
