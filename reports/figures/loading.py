"""matplotlib imported without a word on standard error, whatever the user's settings are: we overrule them all."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def quiet() -> Iterator[None]:
    """Without matplotlib's log: no writable folder for its cache, keys of a matplotlibrc, fonts that are not there.

    The level is put back: in a notebook the log is the user's.
    """
    log = logging.getLogger("matplotlib")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def load() -> None:
    """Import matplotlib; an ``MPLBACKEND`` that names no backend, at which it would raise, is passed over.

    A good one is set as matplotlib's own import does (``matplotlib/__init__.py``): a notebook's pictures need it.
    """
    if "matplotlib" in sys.modules:
        return
    named = os.environ.pop("MPLBACKEND", None)
    try:
        with quiet():
            import matplotlib as mpl
    finally:
        if named is not None:
            os.environ["MPLBACKEND"] = named
    if named:
        with suppress(ValueError):
            mpl.rcParams["backend"] = named


load()
