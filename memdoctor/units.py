"""Bytes to text and back. Nobody else in the project writes 1024."""

from __future__ import annotations

import re

from memdoctor.errors import UsageError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_BINARY = (("TiB", 1024 * GIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB))
_FACTORS = {
    "b": 1,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1024 * GIB,
    "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
}  # fmt: skip
_ROUNDS_UP = 0.000004  # just under a whole unit, its hundredth rounds up to the whole
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


def format_bytes(count: int) -> str:
    """Bytes in the largest binary unit with at least one whole: ``1536`` -> ``1.50 KiB``."""
    sign, magnitude = ("-" if count < 0 else ""), abs(count)
    for unit, factor in _BINARY:
        if magnitude >= factor * (1 - _ROUNDS_UP):  # 1023.999 MiB reads better as 1.00 GiB
            return f"{sign}{magnitude / factor:.2f} {unit}"
    return f"{sign}{magnitude} B"


def parse_bytes(text: str) -> int:
    """``"8 GiB"`` -> bytes. A unit is required, because GiB and GB differ by 7 %.

    Raises:
        UsageError: no number, no unit, an unknown unit, or less than one byte.
    """
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise UsageError(
            f"{text!r} is not a size",
            why="a size is a number and a unit: B, KiB, MiB, GiB, TiB, kB, MB, GB or TB",
            hint='write "8 GiB" (8 x 1024^3 bytes) or "8 GB" (8 x 1000^3 bytes)',
        )
    whole, _, fraction = match.group(1).partition(".")
    size = int(whole + fraction) * factor // int(10 ** len(fraction))
    if size < 1:
        raise UsageError(f"{text!r} is less than one byte")
    return size
