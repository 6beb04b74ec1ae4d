"""Simulated probes that were made before: the same request in the same surroundings comes to the same, to the byte.

A user's own code may change without notice, and is always probed; so is what runs on a GPU or on the CPU.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memdoctor.codec import examination_from_json, examination_to_json
from memdoctor.errors import InputError, MemdoctorError
from memdoctor.probes.kept_files import KeptFiles
from memdoctor.probes.places import cache_directory
from memdoctor.probes.pool import Done, Pool, Request, message_of
from memdoctor.probes.resolve import FACTORY_KEY
from memdoctor.probes.surroundings import surroundings
from memdoctor.records import Examination, Verification

VARIABLE = "MEMDOCTOR_CACHE"
OFF = "off"
_REFUSALS_HOLD = 86400.0  # seconds; what a library cannot do for want of something outside our sight may be mended

Result = Examination | MemdoctorError


@dataclass(frozen=True, slots=True)
class Usage:
    """Where probes are kept, how many, and their bytes."""

    directory: Path
    probes: int
    bytes: int


class Cache:
    """What simulated probes have come to before, in ``files``; ``recalled`` counts those that were of use again."""

    def __init__(self, files: KeptFiles, environ: Mapping[str, str]) -> None:
        self.recalled = 0
        self._files = files
        self._environ = environ
        self._surroundings = _look_around(environ)

    def attempt(self, pool: Pool, requests: Sequence[Request], on_done: Done) -> list[Result]:
        """As :meth:`Pool.attempt`, of a pool that simulates; it is asked for what was not probed before.

        What it finds is kept at once, whatever becomes of the rest.
        """
        results: dict[int, Result] = {}
        for index, request in enumerate(requests):
            known = self.recall(request)
            if known is not None:
                self.recalled += 1
                results[index] = known
                on_done(request, known)
        missing = [index for index in range(len(requests)) if index not in results]
        if missing:

            def keep(request: Request, result: Result | Verification) -> None:
                self.remember(request, result)
                on_done(request, result)

            results |= zip(missing, pool.attempt([requests[index] for index in missing], keep), strict=True)
            self._files.make_room()
        return [results[index] for index in range(len(requests))]

    def recall(self, request: Request) -> Result | None:
        """What this request came to before; ``None`` where that is not known."""
        key = self._key(request)
        kept = None if key is None else self._files.read(key)
        return None if kept is None else _result(kept)

    def remember(self, request: Request, result: Result | Verification) -> None:
        """Keep it, where it will be the same next time: an examination, or that the model refuses the settings."""
        key = self._key(request)
        value = _value(result)
        # The code may have been changed while the probe ran: nobody knows then what the probe ran on.
        if key is not None and value is not None and _look_around(self._environ) == self._surroundings:
            self._files.write(key, value)

    def _key(self, request: Request) -> str | None:
        if self._surroundings is None or FACTORY_KEY in request.facts.config or request.verification is not None:
            return None
        asked = json.dumps([self._surroundings, message_of(request)], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()


def open_cache(environ: Mapping[str, str]) -> Cache | None:
    """The cache of this environment; ``None`` where it is off or has no place."""
    files = _files(environ)
    return None if files is None else Cache(files, environ)


def usage(environ: Mapping[str, str]) -> Usage | None:
    """What is in the cache of this environment; ``None`` where it is off or has no place."""
    files = _files(environ)
    return None if files is None else Usage(files.directory, *files.usage())


def _files(environ: Mapping[str, str]) -> KeptFiles | None:
    said = environ.get(VARIABLE, "")
    if said.lower() == OFF:
        return None
    place = Path(said) if said else cache_directory(environ)
    return None if place is None else KeptFiles(place.absolute() / "probes")


def _look_around(environ: Mapping[str, str]) -> str | None:
    try:
        return surroundings(environ)
    except OSError:  # a source that cannot be read, or has just gone
        return None


def _value(result: Result | Verification) -> dict[str, Any] | None:
    if isinstance(result, Examination):
        return {"examination": examination_to_json(result)}
    if type(result) is InputError:
        return {"refusal": {"what": result.what, "why": result.why, "hint": result.hint}, "told": time.time()}
    return None


def _result(value: Mapping[str, Any]) -> Result | None:
    examination, refusal, told = value.get("examination"), value.get("refusal"), value.get("told")
    try:
        if isinstance(examination, dict):
            return examination_from_json(examination)
        if isinstance(refusal, dict) and isinstance(told, float) and 0 <= time.time() - told < _REFUSALS_HOLD:
            return InputError(str(refusal["what"]), why=str(refusal["why"]), hint=str(refusal["hint"]))
    except (ValueError, KeyError):
        return None
    return None
