"""The folder of recordings: what files are called, what may be there, and when one is there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from memdoctor import __version__
from memdoctor.catalogue import find_gpu
from memdoctor.codec import from_json, to_json
from memdoctor.errors import InputError, MeasureError
from memdoctor.probes.record.comparison import public
from memdoctor.records import Examination, Provenance
from memdoctor.storage import check_writable, envelope, examination_document, read_document, write_document

MOST_BYTES = 200 * 1024  # of one recording
SUFFIX = ".json.gz"
RUN = "run.json"
TABLES = ("table.md", "table.csv", "table.json")
_OURS = {"README.md", RUN, *TABLES}
_TEMPORARY = ".memdoctor-"  # left by a process that was killed while it wrote
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Versions:
    """What a recording depends on, without what it was built for."""

    torch: str
    transformers: str
    memdoctor: str = __version__

    def __str__(self) -> str:
        """For people."""
        return f"torch {self.torch}, transformers {self.transformers}, memdoctor {self.memdoctor}"


def installed_versions() -> Versions:
    """Those of this Python, read from what is installed; torch is not imported.

    Raises:
        MeasureError: torch or transformers is not installed.
    """
    try:
        return Versions(public(version("torch")), public(version("transformers")))
    except PackageNotFoundError as error:
        raise MeasureError(
            f"{error.name} is not installed", why="the training step is its code", hint=f"pip install {error.name}"
        ) from error


def open_folder(folder: Path) -> None:
    """Make the folder, or see that nothing in it is somebody else's.

    Raises:
        InputError: it cannot be made, read or written to, or holds files that are no recordings.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise InputError(
            f"cannot use {folder} for recordings", why=_file_in_the_way(folder) or error.strerror or str(error)
        ) from error
    foreign = [name for name in names if not (name in _OURS or name.endswith(SUFFIX) or name.startswith(_TEMPORARY))]
    if foreign:
        more = f" and {len(foreign) - _MOST_NAMED} more" if len(foreign) > _MOST_NAMED else ""
        raise InputError(
            f"{folder} holds files that are no recordings",
            why=f"{', '.join(foreign[:_MOST_NAMED])}{more}",
            hint="a folder of its own for --out",
        )
    check_writable(folder / RUN, force=True)


def recordings(folder: Path) -> list[Path]:
    """The files of recordings, by name.

    Raises:
        InputError: there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}", why=_file_in_the_way(folder))
    return sorted(folder.glob(f"*{SUFFIX}"))


def file_of(folder: Path, gpu: str, cell: str) -> Path:
    """Where the recording of a cell on the GPU of this name belongs."""
    return folder / f"{_short(gpu)}-{cell}{SUFFIX}"


def recordings_of(folder: Path, cell: str) -> list[Path]:
    """The recordings of the cell on any GPU, by name."""
    return sorted(folder.glob(f"*-{cell}{SUFFIX}"))


def _file_in_the_way(folder: Path) -> str:
    """Which file is where this folder, or one above it, should be; empty where none is."""
    found = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if found is None or found.is_dir():
        return ""
    return "it is a file" if found == folder else f"{found} is a file"


def _short(gpu: str) -> str:
    """``NVIDIA H200`` is ``h200``: the catalogue's name where it has one."""
    entry = find_gpu(gpu)
    name = entry.name if entry is not None else gpu.removeprefix("NVIDIA ")
    return "".join(character if character.isalnum() else "-" for character in name.lower()).strip("-")


def versions_in(path: Path) -> Versions:
    """Those that a recording was made with.

    Raises:
        InputError: it cannot be read.
    """
    try:
        made = from_json(Provenance, read_document(path).get("provenance"))
    except ValueError as error:
        raise InputError(f"{path} is a broken examination", why=str(error)) from error
    return Versions(public(made.torch), public(made.transformers), made.memdoctor)


def save(path: Path, examination: Examination, *, force: bool) -> int:
    """Write the recording, whole or not at all; returns its size in bytes.

    Raises:
        InputError: it cannot be written: the disk is full, the folder is gone.
    """
    try:
        write_document(path, examination_document(examination), force=force)
        return path.stat().st_size
    except InputError as error:
        raise InputError(
            error.what, why=error.why, hint="make room; the same command then goes on where this one ended"
        ) from error


def write_run(folder: Path, results: Sequence[Any]) -> None:
    """Write what became of each cell, in place of what became of it in an earlier run.

    Raises:
        InputError: it cannot be written.
    """
    cells = [to_json(result) for result in results]
    write_document(folder / RUN, {**envelope("recording"), "cells": cells}, force=True)


def read_run(folder: Path) -> Sequence[Mapping[str, Any]]:
    """What became of each cell of the last run; nothing where that was not written, or cannot be read."""
    try:
        cells = read_document(folder / RUN).get("cells", ())
    except InputError:
        return ()
    return [cell for cell in cells if isinstance(cell, dict)] if isinstance(cells, list) else ()
