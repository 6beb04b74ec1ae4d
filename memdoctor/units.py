"""Bytes to text and back. Nobody else in the project writes 1024."""

from __future__ import annotations

import re

from memdoctor.errors import UsageError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_BINARY = (("KiB", KIB), ("MiB", MIB), ("GiB", GIB), ("TiB", 1024 * GIB))
_FACTORS = {
    "b": 1,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1024 * GIB,
    "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
}  # fmt: skip
_SIZE = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([a-zA-Z]+)\s*")


def format_bytes(count: int) -> str:
    """Bytes in the largest binary unit with at least one whole: ``1536`` -> ``1.50 KiB``."""
    sign, magnitude = ("-" if count < 0 else ""), abs(count)
    if magnitude < KIB:
        return f"{sign}{magnitude} B"
    scaled = [((100 * magnitude + factor // 2) // factor, unit) for unit, factor in _BINARY]
    # The smallest unit of which it does not read 1024.00 or more.
    hundredths, unit = next((pair for pair in scaled if pair[0] < 100 * KIB), scaled[-1])
    return f"{sign}{hundredths // 100}.{hundredths % 100:02d} {unit}"


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
