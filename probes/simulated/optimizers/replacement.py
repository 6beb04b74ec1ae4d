"""An attribute of somebody else's module, replaced for a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Replacement:
    """``standin`` is to be the attribute ``name`` of ``owner``, a module or a class, which may not have it yet."""

    owner: Any
    name: str
    standin: Any

    def put(self) -> Any:
        """Put the stand-in there; what was there is returned for :meth:`take_back`."""
        original = getattr(self.owner, self.name, _ABSENT)
        setattr(self.owner, self.name, self.standin)
        return original

    def take_back(self, original: Any) -> None:
        """Put back what was there, or nothing."""
        if original is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, original)
