"""From what someone types to a checkpoint, and from a wrong name to the names near it."""

from __future__ import annotations

from functools import cache

from memdoctor.catalogue.entries import ModelEntry
from memdoctor.catalogue.nearness import near
from memdoctor.catalogue.tables import models


def find_model(name: str) -> ModelEntry | None:
    """The checkpoint of this name or alias, whatever the case; the organisation may be left out.

    A name with another organisation is another checkpoint and finds nothing.
    """
    return _by_key().get(name.strip().lower())


def near_models(name: str, limit: int = 4) -> tuple[str, ...]:
    """Names of at most ``limit`` checkpoints whose name or alias is close to this one, the closest first."""
    names = {key: (entry.name,) for key, entry in _by_key().items()}
    return near(name.strip().lower(), names, limit)


@cache
def _by_key() -> dict[str, ModelEntry]:
    spellings = [(spelling.lower(), entry) for entry in models() for spelling in (entry.name, *entry.aliases)]
    short = {spelling.rpartition("/")[2]: entry for spelling, entry in spellings}
    # Whole names last: they win over the short form of another entry.
    return short | dict(spellings)
