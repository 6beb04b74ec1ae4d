"""The folder of recordings: names, what may be in it, and what is told when it cannot be used."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from memdoctor.errors import InputError, MeasureError
from memdoctor.probes.record.files import (
    Versions,
    file_of,
    installed_versions,
    open_folder,
    read_run,
    recordings,
    recordings_of,
    save,
    versions_in,
    write_run,
)
from memdoctor.probes.record.runner import Result, State
from memdoctor.records import Examination


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA H200", "h200-a"), ("Tesla T4", "t4-a"), ("NVIDIA A100-SXM4-80GB", "a100-80gb-a"),
        ("NVIDIA Thing 9/Super", "thing-9-super-a"),
    ],
)  # fmt: skip
def test_a_file_is_named_for_its_card_and_cell(tmp_path: Path, gpu: str, name: str) -> None:
    assert file_of(tmp_path, gpu, "a") == tmp_path / f"{name}.json.gz"


def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    open_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_of_recordings_is_used_again(tmp_path: Path) -> None:
    for name in ("h200-a.json.gz", "README.md", "run.json", "table.md", "table.csv", "table.json", ".memdoctor-x1"):
        (tmp_path / name).touch()
    open_folder(tmp_path)


def test_a_folder_of_others_is_not_used(tmp_path: Path) -> None:
    for name in ("notes.txt", "a.py", "b.py", "z.json", "h200-a.json.gz"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="holds files that are no recordings") as raised:
        open_folder(tmp_path)
    assert raised.value.why == "a.py, b.py, notes.txt and 1 more"


def test_a_file_in_its_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(InputError, match=r"cannot use .*out for recordings") as raised:
        open_folder(tmp_path / "out")
    assert raised.value.why == "it is a file"
    with pytest.raises(InputError, match=r"cannot use .*below for recordings") as raised:
        open_folder(tmp_path / "out" / "below")
    assert raised.value.why == f"{tmp_path / 'out'} is a file"
    with pytest.raises(InputError, match="there is no folder") as raised:
        recordings(tmp_path / "out")
    assert raised.value.why == "it is a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write whatever the permissions say")
def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot write"):
        open_folder(tmp_path)


def test_recordings_are_found_by_name(tmp_path: Path) -> None:
    for name in ("t4-b.json.gz", "t4-a.json.gz", "run.json"):
        (tmp_path / name).touch()
    assert [path.name for path in recordings(tmp_path)] == ["t4-a.json.gz", "t4-b.json.gz"]
    with pytest.raises(InputError, match="there is no folder"):
        recordings(tmp_path / "nowhere")


def test_a_cell_of_a_model_is_not_that_of_another(tmp_path: Path) -> None:
    (tmp_path / "t4-roberta-base-8x512.json.gz").touch()
    assert recordings_of(tmp_path, "roberta-base-8x512") == [tmp_path / "t4-roberta-base-8x512.json.gz"]
    assert recordings_of(tmp_path, "bert-base-8x512") == []


def test_a_recording_says_which_versions_made_it(recording: Callable[..., Examination], tmp_path: Path) -> None:
    path = tmp_path / "t4-a.json.gz"
    size = save(path, recording(torch="2.11.0+cu130"), force=False)
    assert size == path.stat().st_size
    assert versions_in(path) == Versions("2.11.0", "5.17.0", "0.1.0")


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("memdoctor.probes.record.files.version", missing)
    with pytest.raises(MeasureError, match="torch is not installed") as raised:
        installed_versions()
    assert raised.value.hint == "pip install torch"


def test_what_became_of_each_cell_is_written_and_read(tmp_path: Path) -> None:
    write_run(tmp_path, [Result("a", State.FAILED, "why")])
    write_run(tmp_path, [Result("b", State.NOT_REACHED, "late"), Result("c", State.RECORDED, file="t4-c.json.gz")])
    assert [(cell["cell"], cell["state"], cell["reason"]) for cell in read_run(tmp_path)] == [
        ("b", "not reached", "late"), ("c", "recorded", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("content", [None, "broken", '{"schema_version":1,"kind":"recording","cells":7}'])
def test_no_account_of_the_last_run_is_none(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert read_run(tmp_path) == ()
