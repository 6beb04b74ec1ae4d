"""Files: JSON documents that are versioned, compressed where asked, and written whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memdoctor import __version__
from memdoctor.analysis import breakdown_of, peak_of, phases_of
from memdoctor.codec import examination_from_json, examination_to_json, to_json
from memdoctor.errors import InputError
from memdoctor.records import Examination

SCHEMA_VERSION = 1
TEMPORARY = ".memdoctor-"  # how the names of files begin that are not whole yet
_GZIP_MAGIC = b"\x1f\x8b"


def envelope(kind: str) -> dict[str, Any]:
    """What every document starts with: the version of its schema, who wrote it, and what it is."""
    return {"schema_version": SCHEMA_VERSION, "tool": {"name": "memdoctor", "version": __version__}, "kind": kind}


def examination_document(examination: Examination) -> dict[str, Any]:
    """An examination as the file to save: the evidence and, for other programs, its peak and where the bytes are."""
    derived = {
        "peak": to_json(peak_of(examination)),
        "breakdown": to_json(breakdown_of(examination)),
        "phases": [to_json(phase) for phase in phases_of(examination)],
    }
    return {**envelope("examination"), **derived, **examination_to_json(examination)}


def load_examination(path: Path) -> Examination:
    """Read a saved examination.

    Raises:
        InputError: not there, broken, not an examination, or written by a newer memdoctor.
    """
    document = read_document(path)
    if document["kind"] != "examination":
        raise InputError(f"{path} is no examination", why=f"it is a {document['kind']}")
    try:
        return examination_from_json(document)
    except ValueError as error:
        raise InputError(f"{path} is a broken examination", why=str(error)) from error


def write_document(path: Path, document: Mapping[str, Any], *, force: bool, private: bool = False) -> None:
    """Write JSON to ``path``, gzipped where its name ends in ``.gz``: whole or not at all.

    ``private``: nobody else may read it.

    Raises:
        InputError: the file exists (without ``force``), or cannot be written.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    write_content(path, text, force=force, private=private)


def write_content(path: Path, content: bytes, *, force: bool, private: bool = False) -> None:
    """As :func:`write_bytes`; gzipped where the name of ``path`` ends in ``.gz``."""
    packed = gzip.compress(content, mtime=0) if path.suffix == ".gz" else content
    write_bytes(path, packed, force=force, private=private)


def write_bytes(path: Path, content: bytes, *, force: bool, private: bool = False) -> None:
    """Write a file whole or not at all: under another name first, then renamed.

    ``private``: nobody else may read it.

    Raises:
        InputError: the file exists (without ``force``), or cannot be written.
    """
    check_writable(path, force=force)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            if not private:  # which it was made
                temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        except BaseException:
            temporary.unlink()
            raise
    except OSError as error:
        raise InputError(f"cannot write {path}", why=error.strerror or str(error)) from error


def check_writable(path: Path, *, force: bool) -> None:
    """Find out before the work is done whether its result could be written.

    Raises:
        InputError: it could not.
    """
    try:
        path.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:  # a name too long, a file where a directory should be
        raise InputError(f"cannot write {path}", why=error.strerror or str(error)) from error
    if path.is_dir():
        raise InputError(f"cannot write {path}", why="it is a directory")
    if path.exists() and not force:
        raise InputError(f"{path} exists", hint="-f to overwrite it, or another -o")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}", why=f"there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write {path}", why=f"no permission to write in {path.parent}")


def read_document(path: Path) -> dict[str, Any]:
    """Read a JSON document that memdoctor wrote, compressed or not.

    Raises:
        InputError: missing, unreadable, not ours, broken, or of a newer version.
    """
    try:
        content = path.read_bytes()
        text = gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
        document = json.loads(text)
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}", why=error.strerror or str(error)) from error
    except (EOFError, ValueError, RecursionError, zlib.error) as error:
        raise InputError(f"{path} is broken or not JSON", why=str(error)) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if type(version) is not int or version < 1 or not isinstance(document.get("kind"), str):
        raise InputError(f"{path} is not a memdoctor file", why="it has no schema_version and kind")
    if version > SCHEMA_VERSION:
        raise InputError(
            f"{path} was written by a newer memdoctor",
            why=f"its schema_version is {version}, this one reads up to {SCHEMA_VERSION}",
            hint="upgrade memdoctor-gpu",
        )
    assert isinstance(document, dict)
    return document


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
