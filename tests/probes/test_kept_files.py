"""Documents on disk: what was kept is found, what is broken is not there, and nothing stands in anybody's way."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from memdoctor.probes.kept_files import KeptFiles

KEYS = [character * 64 for character in "0123456789abcdef"]
VALUE = {"examination": {"figure": 7}}
WRITER = """
import sys
from pathlib import Path
from memdoctor.probes.kept_files import KeptFiles
files = KeptFiles(Path(sys.argv[1]), most_bytes=1000)
for turn in range(30):
    for character in "0123456789abcdef":
        key = character * 64
        files.write(key, {"figures": [character] * 500})
        found = files.read(key)
        assert found in (None, {"figures": [character] * 500}), found
    files.make_room()
"""


@pytest.fixture
def files(tmp_path: Path) -> KeptFiles:
    """In a directory that is not there yet."""
    return KeptFiles(tmp_path / "caches" / "probes")


def path_of(files: KeptFiles, key: str) -> Path:
    """The one file of a key."""
    (path,) = files.directory.glob(f"{key}*")
    return path


def test_what_was_kept_is_found(files: KeptFiles) -> None:
    assert files.read(KEYS[0]) is None
    files.write(KEYS[0], VALUE)
    assert files.read(KEYS[0]) == VALUE
    assert files.read(KEYS[1]) is None
    files.write(KEYS[0], {"examination": {}})
    assert files.read(KEYS[0]) == {"examination": {}}


def test_nobody_else_may_read_it(files: KeptFiles) -> None:
    files.write(KEYS[0], VALUE)
    assert stat.S_IMODE(files.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(path_of(files, KEYS[0]).stat().st_mode) == 0o600


def compressed(document: object) -> bytes:
    """A file with this in it."""
    return gzip.compress(json.dumps(document).encode(), mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x1f\x8b", b"no gzip", compressed(None), compressed([]), compressed({"schema_version": 1}),
        compressed({"schema_version": 1, "kind": "examination", "key": KEYS[0], "value": {}}),
        compressed({"schema_version": 99, "kind": "kept", "key": KEYS[0], "value": {}}),
        compressed({"schema_version": 1, "kind": "kept", "key": KEYS[1], "value": {}}),
        compressed({"schema_version": 1, "kind": "kept", "key": KEYS[0], "value": []}),
    ],
)  # fmt: skip
def test_a_broken_or_foreign_file_is_not_there_and_gives_way(files: KeptFiles, content: bytes) -> None:
    files.write(KEYS[0], VALUE)
    path_of(files, KEYS[0]).write_bytes(content)
    assert files.read(KEYS[0]) is None
    files.write(KEYS[0], VALUE)
    assert files.read(KEYS[0]) == VALUE


def test_a_file_that_is_cut_short_anywhere_is_not_there(files: KeptFiles) -> None:
    files.write(KEYS[0], VALUE)
    path = path_of(files, KEYS[0])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert files.read(KEYS[0]) is None


def test_what_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    for files in (KeptFiles(tmp_path / "file"), KeptFiles(tmp_path / "file" / "probes")):
        files.write(KEYS[0], VALUE)
        files.make_room()
        assert files.read(KEYS[0]) is None
        assert files.usage() == (0, 0)


def test_a_full_disk_keeps_what_it_has(files: KeptFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(KEYS[0], VALUE)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fdopen", full)
        files.write(KEYS[1], VALUE)
    assert files.read(KEYS[0]) == VALUE
    assert [path.name for path in files.directory.iterdir()] == [f"{KEYS[0]}.json.gz"]


def filled(directory: Path, most_bytes: int) -> KeptFiles:
    """Ten documents of 100 bytes, the first used at second 1, the next at 2 and so on."""
    files = KeptFiles(directory, most_bytes)
    directory.mkdir()
    for second, key in enumerate(KEYS[:10], 1):
        path = directory / f"{key}.json.gz"
        path.write_bytes(bytes(100))
        os.utime(path, (second, second))
    return files


def left(files: KeptFiles) -> list[str]:
    """Whose documents are there."""
    return sorted(path.name[0] for path in files.directory.iterdir())


def test_nothing_goes_while_there_is_room(tmp_path: Path) -> None:
    files = filled(tmp_path / "probes", 1000)
    files.make_room()
    assert files.usage() == (10, 1000)


def test_what_was_used_least_lately_goes_first(tmp_path: Path) -> None:
    files = filled(tmp_path / "probes", 999)
    files.make_room()
    assert left(files) == list("23456789")  # 800 bytes, the first multiple of 100 below nine tenths of 999
    assert files.usage() == (8, 800)


def test_to_be_read_is_to_be_of_use(tmp_path: Path) -> None:
    files = filled(tmp_path / "probes", 1200)
    files.write(KEYS[0], VALUE)
    os.utime(path_of(files, KEYS[0]), (0, 0))
    assert files.read(KEYS[0]) == VALUE
    KeptFiles(files.directory, 500).make_room()
    assert "0" in left(files)
    assert "1" not in left(files)


def test_files_of_others_stay_and_what_was_abandoned_goes(tmp_path: Path) -> None:
    files = filled(tmp_path / "probes", 0)
    for name in ("notes.txt", "report.json.gz", ".memdoctor-new", ".memdoctor-old"):
        (files.directory / name).write_bytes(bytes(5000))
    os.utime(files.directory / ".memdoctor-old", (0, 0))
    files.make_room()
    assert sorted(path.name for path in files.directory.iterdir()) == [".memdoctor-new", "notes.txt", "report.json.gz"]


def test_processes_may_share_a_directory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "probes")]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(process.communicate()[1], process.returncode) for process in running] == [("", 0)] * 3
    assert KeptFiles(tmp_path / "probes").usage()[1] <= 1000
