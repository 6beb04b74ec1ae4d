"""Where files are kept that can be made again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environ: Mapping[str, str]) -> Path | None:
    """Ours, in XDG_CACHE_HOME where that is set and absolute, as the XDG Base Directory Specification asks.

    ``None`` where this environment has no directory for caches.
    """
    given = Path(environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():
        return given / "memdoctor"
    local = environ.get("LOCALAPPDATA")
    if sys.platform == "win32" and local:
        return Path(local) / "memdoctor"
    home = environ.get("HOME") or environ.get("USERPROFILE")
    return Path(home) / ".cache" / "memdoctor" if home else None
