"""The libraries that a probe runs on: an installation that is broken is told as what it is, and is no bug of ours."""

from __future__ import annotations

import importlib
from functools import cache

from memdoctor.errors import MeasureError

_LIBRARIES = ("torch", "transformers")
_OWN = "memdoctor"
_HINT = "pip check tells which packages do not go together; memdoctor env lists what is installed"


@cache
def broken_library() -> MeasureError | None:
    """Why torch or transformers cannot be imported; ``None`` where both are there.

    Tried once for a process: importing what is half there fails for another reason than the first time.
    """
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - torch also raises OSError and ValueError where a library is missing
            return _refusal(name, error)
    return None


def import_refusal(error: ImportError) -> MeasureError | None:
    """Something that is imported later and cannot be; ``None`` where it is a module of ours."""
    name = error.name or "a library that the probe needs"
    return None if name.partition(".")[0] == _OWN else _refusal(name, error)


def _refusal(name: str, error: Exception) -> MeasureError:
    why = " ".join(f"{type(error).__name__}: {error}".split())
    return MeasureError(f"{name} cannot be imported", why=why, hint=_HINT)
