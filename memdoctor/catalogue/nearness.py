"""What counts as a near name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from itertools import islice

MIN_SIMILARITY = 0.65  # difflib's default of 0.6 lets "MI300X" pass for "3090"


def near(key: str, names: Mapping[str, Iterable[str]], limit: int) -> tuple[str, ...]:
    """At most ``limit`` names whose key begins with ``key``, contains it or resembles it, in this order, each once.

    ``key`` and the keys of ``names`` are normalised alike; one key may stand for several names. Keys that
    begin with ``key`` or contain it keep the order of ``names``, those that resemble it come the most similar first.
    """
    if not key:
        return ()
    nearness = {other: _nearness(key, other) for other in names}
    ranked = sorted(names, key=nearness.__getitem__, reverse=True)
    found = dict.fromkeys(name for other in ranked if nearness[other] >= MIN_SIMILARITY for name in names[other])
    return tuple(islice(found, limit))


def _nearness(key: str, other: str) -> float:
    """3 for a beginning, 2 for a part, else the similarity from 0 to 1."""
    if key in other:
        return 3.0 if other.startswith(key) else 2.0
    return SequenceMatcher(None, key, other).ratio()
