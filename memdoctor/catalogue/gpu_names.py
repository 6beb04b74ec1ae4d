"""From what someone types, or what CUDA reports, to a GPU of the catalogue.

One card has many spellings: "Tesla T4", "V100 16 GB", "A100-SXM4-40GB", "3090". A spelling is read
as a *stem* (the card) and a *size* (its memory, where it is written). A stem with two sizes, such as
"A100", is ambiguous and finds nothing; the sizes are then near names.
"""

from __future__ import annotations

import re
from functools import cache

from memdoctor.catalogue.entries import GpuEntry
from memdoctor.catalogue.nearness import near
from memdoctor.catalogue.tables import gpus
from memdoctor.records import Rates
from memdoctor.units import GIB

# CUDA reports 91 % (T4) to 99 % (P100) of the size on the box.
SMALLEST_SHARE_OF_SIZE = 0.88

_BRANDS = re.compile(r"(?:nvidia|tesla|geforce)*")
# "40GB", "40 G" or a bare "40" as a word of its own; longer numbers are part of a name ("RTX 3090").
_SIZE = re.compile(r"(?<![a-z0-9])(\d{1,3})(?:\s*gb?)?(?![a-z0-9])")


def find_gpu(text: str) -> GpuEntry | None:
    """The GPU of this name or alias, whatever case, separators and brand; None if unknown or ambiguous.

    The size may be left out where only one card has the name, and must fit the card where it is written.
    """
    exact = _by_spelling().get(_squeeze(text))
    if exact is not None:
        return exact
    stem, size = _stem_and_size(text)
    fitting = [entry for entry in _by_stem().get(stem, ()) if size is None or _fits(entry, size)]
    return fitting[0] if len(fitting) == 1 else None


def rates_of(gpu_name: str) -> Rates | None:
    """The published rates of the GPU of this name, e.g. that which NVML gives; None if unknown or ambiguous."""
    entry = find_gpu(gpu_name)
    return entry.rates if entry is not None else None


def near_gpus(text: str, limit: int = 4) -> tuple[str, ...]:
    """Names of at most ``limit`` GPUs close to ``text``; for an ambiguous name, the cards that it may mean."""
    spelt = {key: (entry,) for key, entry in _by_spelling().items()}
    entries: dict[str, tuple[GpuEntry, ...]] = {**spelt, **_by_stem()}
    names = {key: [entry.name for entry in found] for key, found in entries.items()}
    return near(_squeeze(text), names, limit)


def _squeeze(text: str) -> str:
    """Lower case, letters and digits only, without the brand."""
    return _BRANDS.sub("", re.sub(r"[^a-z0-9]", "", text.lower()), count=1)


def _stem_and_size(text: str) -> tuple[str, int | None]:
    match = _SIZE.search(text.lower().replace("_", "-"))
    if match is None:
        return _squeeze(text), None
    return _squeeze(text[: match.start()] + " " + text[match.end() :]), int(match[1])


def _fits(entry: GpuEntry, size: int) -> bool:
    return SMALLEST_SHARE_OF_SIZE * size * GIB <= entry.total_bytes <= size * GIB


@cache
def _by_spelling() -> dict[str, GpuEntry]:
    return {_squeeze(spelling): entry for entry in gpus() for spelling in (entry.name, *entry.aliases)}


@cache
def _by_stem() -> dict[str, tuple[GpuEntry, ...]]:
    stems: dict[str, dict[str, GpuEntry]] = {}
    for entry in gpus():
        for spelling in (entry.name, *entry.aliases):
            stems.setdefault(_stem_and_size(spelling)[0], {})[entry.name] = entry
    return {stem: tuple(entries.values()) for stem, entries in stems.items()}
