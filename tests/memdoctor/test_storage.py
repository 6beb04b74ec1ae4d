"""Files: written whole or not at all, and whatever lies there instead of one of ours is refused in a sentence."""

from __future__ import annotations

import errno
import gzip
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from memdoctor.errors import InputError
from memdoctor.storage import SCHEMA_VERSION, check_writable, read_document, write_bytes, write_document

DOCUMENT = {"schema_version": SCHEMA_VERSION, "kind": "diagnosis", "text": "größer ±", "numbers": list(range(40))}
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
not_as_root = pytest.mark.skipif(AS_ROOT, reason="root may read and write whatever the permissions say")


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_document_comes_back(tmp_path: Path, name: str) -> None:
    write_document(tmp_path / name, DOCUMENT, force=False)
    assert read_document(tmp_path / name) == DOCUMENT


def test_compression_follows_the_name_when_written_and_the_content_when_read(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.json", tmp_path / "a.json.gz"
    write_document(plain, DOCUMENT, force=False)
    write_document(packed, DOCUMENT, force=False)
    assert json.loads(plain.read_text(encoding="utf-8")) == DOCUMENT
    assert packed.stat().st_size < plain.stat().st_size
    packed.replace(plain)
    assert read_document(plain) == DOCUMENT


def test_the_same_document_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.json.gz", "two.json.gz", "one.json", "two.json"):
        write_document(tmp_path / name, DOCUMENT, force=False)
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "two.json.gz").read_bytes()
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def test_the_compressed_file_carries_no_time_and_no_name(tmp_path: Path) -> None:
    write_document(tmp_path / "secret.json.gz", DOCUMENT, force=False)
    content = (tmp_path / "secret.json.gz").read_bytes()
    assert content[4:8] == b"\0\0\0\0"  # MTIME of RFC 1952
    assert b"secret" not in content


def test_a_number_that_json_has_not_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_document(tmp_path / "a.json", {**DOCUMENT, "x": float("nan")}, force=False)
    assert list(tmp_path.iterdir()) == []


def refusal(path: Path) -> InputError:
    """The error of reading a file that is not one of ours."""
    with pytest.raises(InputError) as caught:
        read_document(path)
    assert str(path) in caught.value.what
    assert len(str(caught.value)) < 1000
    return caught.value


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    assert "no file" in refusal(tmp_path / "nowhere.json").what


def test_a_file_in_a_missing_directory_is_said_to_be_missing(tmp_path: Path) -> None:
    assert "no file" in refusal(tmp_path / "nowhere" / "a.json").what


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path).why.lower()


def test_a_name_too_long_for_the_system_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path / ("x" * 300))


@not_as_root
def test_an_unreadable_file_says_that_permission_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_document(path, DOCUMENT, force=False)
    path.chmod(0)
    assert "ermission" in refusal(path).why


@pytest.mark.parametrize(
    "content",
    [
        b"", b" ", b"\n", b"{", b'{"schema_version": 1,', b"import torch\n", b"\x89PNG\r\n\x1a\n", b"\xff\xfe\xfd",
        b"\x80",
        b"PK\x03\x04", b"\x1f\x8b", b"\x1f\x8b\x08\x00garbage", b"nul", b"'single'", b'"\\ud800', b"1" * 5000,
        gzip.compress(b"", mtime=0), gzip.compress(b"not json", mtime=0), b"[" * 100_000, b'{"a":' * 100_000,
    ],
    ids=lambda content: repr(content[:12]),
)  # fmt: skip
def test_what_is_not_json_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert refusal(path).why


@pytest.mark.parametrize(
    "value",
    [
        None, 1, 1.5, True, "text", [], [DOCUMENT], {}, {"kind": "diagnosis"}, {"schema_version": 1},
        {"model_type": "bert"},
    ],
    ids=lambda value: repr(value)[:20],
)  # fmt: skip
def test_json_of_another_program_is_refused(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    assert "not a memdoctor file" in refusal(path).what


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 999])
def test_a_newer_version_asks_for_a_newer_memdoctor(tmp_path: Path, version: int) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**DOCUMENT, "schema_version": version}), encoding="utf-8")
    error = refusal(path)
    assert "newer" in error.what
    assert str(version) in error.why
    assert "upgrade" in error.hint


@pytest.mark.parametrize("version", ["1", None, [], {}, 1.5])
def test_a_version_that_is_no_number_is_refused(tmp_path: Path, version: Any) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**DOCUMENT, "schema_version": version}), encoding="utf-8")
    refusal(path)


def test_a_file_of_windows_with_its_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(DOCUMENT), encoding="utf-8-sig")
    assert read_document(path) == DOCUMENT


def packed() -> bytes:
    """A compressed document."""
    return gzip.compress(json.dumps(DOCUMENT).encode(), mtime=0)


def test_a_compressed_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    for length in range(len(packed())):
        path.write_bytes(packed()[:length])
        refusal(path)


@pytest.mark.parametrize("change", [lambda byte: byte ^ 0xFF, lambda byte: byte ^ 0x01, lambda byte: 0])
def test_a_byte_changed_anywhere_in_a_compressed_file_is_refused_or_harmless(
    tmp_path: Path, change: Callable[[int], int]
) -> None:
    """The checksum sees to it; the header has bytes that mean nothing here (time, system)."""
    path, content = tmp_path / "a.json.gz", packed()
    for position, byte in enumerate(content):
        path.write_bytes(content[:position] + bytes([change(byte)]) + content[position + 1 :])
        with suppress(InputError):
            assert read_document(path) == DOCUMENT


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="exists") as caught:
        write_document(path, DOCUMENT, force=False)
    assert "-f" in caught.value.hint
    assert path.read_text(encoding="utf-8") == "mine"
    write_document(path, DOCUMENT, force=True)
    assert read_document(path) == DOCUMENT


def test_writing_leaves_no_other_file(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a.json", b"1", force=False)
    write_bytes(tmp_path / "a.json", b"2", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """The system refuses larger files, as a full disk does."""
    resource = pytest.importorskip("resource", reason="limits of a process are POSIX")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_half_way_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("mine", encoding="utf-8")
    with no_file_larger_than(1000), pytest.raises(InputError, match="cannot write") as caught:
        write_bytes(path, b"x" * 100_000, force=True)
    assert caught.value.why == os.strerror(errno.EFBIG)
    assert path.read_text(encoding="utf-8") == "mine"
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, SystemExit])
def test_an_interruption_at_the_last_moment_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[BaseException]
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise fault

    monkeypatch.setattr(os, "replace", interrupted)
    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(fault):
        write_bytes(tmp_path / "a.json", b"x", force=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_bytes(tmp_path / "ours.json", b"x", force=False)
        (tmp_path / "any").write_bytes(b"x")
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    ours, others = (stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours.json", "any"))
    assert ours == others == 0o666 & ~mask


def unwritable(path: Path, *, force: bool = False) -> InputError:
    """The error of asking whether the path can be written, which is that of writing it."""
    with pytest.raises(InputError) as caught:
        check_writable(path, force=force)
    with pytest.raises(InputError) as again:
        write_bytes(path, b"x", force=force)
    assert str(again.value) == str(caught.value)
    return caught.value


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_is_not_overwritten(tmp_path: Path, force: bool) -> None:
    assert "directory" in unwritable(tmp_path, force=force).why


def test_a_missing_directory_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "a.json"
    assert str(path.parent) in unwritable(path).why
    assert not path.parent.exists()


def test_a_file_where_a_directory_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    unwritable(tmp_path / "file" / "a.json")


def test_a_name_too_long_for_the_system_cannot_be_written(tmp_path: Path) -> None:
    unwritable(tmp_path / ("x" * 300 + ".json"))


def test_a_name_as_long_as_the_system_allows_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250 + ".json")
    write_bytes(path, b"x", force=False)
    assert path.read_bytes() == b"x"


@not_as_root
def test_a_directory_without_permission_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        assert "permission" in unwritable(tmp_path / "a.json").why
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("version", [0, -3, True, "1", 1.0, None])
def test_a_version_that_no_memdoctor_writes_is_not_ours(tmp_path: Path, version: Any) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"schema_version": version, "kind": "examination"}))
    with pytest.raises(InputError, match="not a memdoctor file"):
        read_document(path)
