"""JSON documents on disk under keys: private, bounded, used least lately first to go, and never in anybody's way.

Whatever is wrong with a file, it is not there; where nothing can be written, nothing is kept. Processes may share the
directory: files appear and vanish whole.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memdoctor.errors import InputError
from memdoctor.storage import TEMPORARY, envelope, read_document, write_document

MOST_BYTES = 512 << 20  # some fifteen thousand examinations of BERT-base
_LESS = 0.9  # of the most that there may be is left after room was made, so that it is not made each time
_KIND = "kept"
_OURS = re.compile(r"[0-9a-f]{64}\.json\.gz")
_ABANDONED = 3600.0  # seconds after which a file that is not whole never will be


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """The documents in ``directory``, which need not exist; together at most ``most_bytes``."""

    directory: Path
    most_bytes: int = MOST_BYTES

    def read(self, key: str) -> dict[str, Any] | None:
        """What was kept under this key (64 hexadecimal digits), or ``None``."""
        path = self._path(key)
        try:
            document = read_document(path)
        except InputError:
            return None
        value = document.get("value")
        if document["kind"] != _KIND or document.get("key") != key or not isinstance(value, dict):
            return None
        with suppress(OSError):
            os.utime(path)  # it was of use now
        return value

    def write(self, key: str, value: dict[str, Any]) -> None:
        """Keep this under this key, where it can be kept."""
        with suppress(OSError, InputError):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            document = {**envelope(_KIND), "key": key, "value": value}
            write_document(self._path(key), document, force=True, private=True)

    def make_room(self) -> None:
        """Remove what was used least lately, where there is too much."""
        files = self._files()
        total = sum(size for _, size, _ in files)
        if total <= self.most_bytes:
            return
        for _, size, path in sorted(files):
            if total <= _LESS * self.most_bytes:
                return
            with suppress(OSError):
                path.unlink(missing_ok=True)
                total -= size

    def usage(self) -> tuple[int, int]:
        """How many documents there are, and their bytes on the disk's books."""
        sizes = [size for _, size, _ in self._files()]
        return len(sizes), sum(sizes)

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}.json.gz"

    def _files(self) -> list[tuple[int, int, Path]]:
        """When each was used last (ns), its bytes and its path; what nobody will finish is removed on the way."""
        found = []
        with suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                with suppress(OSError):
                    if _OURS.fullmatch(entry.name):
                        found.append((entry.stat().st_mtime_ns, entry.stat().st_size, Path(entry.path)))
                    elif entry.name.startswith(TEMPORARY) and time.time() - entry.stat().st_mtime > _ABANDONED:
                        Path(entry.path).unlink()
        return found
