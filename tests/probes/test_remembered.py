"""Contexts that were measured are kept for this card, driver, CUDA and torch; no state of the file is an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from memdoctor.probes.context import Context
from memdoctor.probes.remembered import Setting, cache_file, recall, remember, remembered, setting_here
from memdoctor.probes.torch_build import TorchBuild

SETTING = Setting(gpu="Tesla T4", driver="580.65.06", cuda="13.0", torch="2.13.0")
CONTEXT = Context(124 << 20, 2 << 20, "measured: process bytes by pid less reserved")


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    """An environment with a cache directory that is not there yet."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def file_of(environ: Mapping[str, str]) -> Path:
    """The file, which must have a place."""
    path = cache_file(environ)
    assert path is not None
    return path


def write(environ: Mapping[str, str], content: str) -> None:
    """Put something in the file's place."""
    file_of(environ).parent.mkdir(parents=True)
    file_of(environ).write_text(content, encoding="utf-8")


def document(*entries: object) -> str:
    """The file with these entries."""
    return json.dumps({"schema_version": 1, "kind": "contexts", "contexts": entries})


def test_what_was_remembered_is_recalled(cache: dict[str, str]) -> None:
    assert recall(SETTING, cache) is None
    assert remember(SETTING, CONTEXT, cache) is None
    assert recall(SETTING, cache) == CONTEXT


def test_a_later_measurement_takes_the_place_of_an_earlier(cache: dict[str, str]) -> None:
    later = replace(CONTEXT, context_bytes=130 << 20)
    other = replace(SETTING, driver="590.1")
    for setting, context in ((SETTING, CONTEXT), (other, CONTEXT), (SETTING, later)):
        assert remember(setting, context, cache) is None
    assert recall(SETTING, cache) == later
    assert [entry.setting for entry in remembered(cache)] == [other, SETTING]


@pytest.mark.parametrize("changed", [{"gpu": "NVIDIA L4"}, {"driver": "590.1"}])
def test_another_card_or_driver_has_another_context(cache: dict[str, str], changed: dict[str, str]) -> None:
    remember(SETTING, CONTEXT, cache)
    assert recall(replace(SETTING, **changed), cache) is None


@pytest.mark.parametrize("changed", [{"torch": "2.14.1"}, {"cuda": "12.6"}])
def test_another_torch_will_do_and_is_named(cache: dict[str, str], changed: dict[str, str]) -> None:
    remember(SETTING, CONTEXT, cache)
    found = recall(replace(SETTING, **changed), cache)
    assert found == replace(CONTEXT, source=f"{CONTEXT.source}; with torch 2.13.0, CUDA 13.0")


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", document(None, 7, [], {}), document({"setting": {}, "context": {}}),
        '{"schema_version": 99, "kind": "contexts", "contexts": []}', '{"schema_version": 1, "kind": "examination"}',
        '{"schema_version": 1, "kind": "contexts", "contexts": {}}',
    ],
)  # fmt: skip
def test_a_broken_or_foreign_file_counts_as_empty(cache: dict[str, str], content: str) -> None:
    write(cache, content)
    assert remembered(cache) == ()
    assert remember(SETTING, CONTEXT, cache) is None
    assert recall(SETTING, cache) == CONTEXT


@pytest.mark.parametrize(
    "wrong",
    [
        {"context_bytes": 0}, {"context_bytes": -1}, {"context_bytes": "1"}, {"context_bytes": True},
        {"error_bytes": -1}, {"error_bytes": None}, {"source": 7}, {"more": 1},
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_is_passed_over(cache: dict[str, str], wrong: dict[str, Any]) -> None:
    good = {"setting": asdict(SETTING), "context": asdict(CONTEXT)}
    bad = {"setting": asdict(SETTING), "context": {**asdict(CONTEXT), **wrong}}
    write(cache, document(bad, good))
    assert [entry.context for entry in remembered(cache)] == [CONTEXT]


def test_a_file_that_cannot_be_written_is_told_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "memdoctor").write_text("in the way", encoding="utf-8")
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert "cannot write" in (remember(SETTING, CONTEXT, environ) or "")
    assert recall(SETTING, environ) is None


def test_a_full_disk_is_told_and_leaves_the_file_whole(cache: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    remember(SETTING, CONTEXT, cache)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fdopen", full)
        assert "No space left" in (remember(replace(SETTING, torch="2.14.1"), CONTEXT, cache) or "")
    assert [entry.setting for entry in remembered(cache)] == [SETTING]
    assert [path.name for path in file_of(cache).parent.iterdir()] == ["contexts.json"]


def test_the_setting_is_that_of_the_machine(nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(nvml.card())
    monkeypatch.setattr("memdoctor.probes.remembered.torch_build", lambda: TorchBuild("2.13.0", "13.0", None))
    assert setting_here("Tesla T4") == SETTING
    pretend_gpus(faults={"nvmlInitWithFlags": nvml.NVML_ERROR_DRIVER_NOT_LOADED})
    assert setting_here("Tesla T4") is None


@pytest.mark.parametrize("build", [None, TorchBuild("2.13.0+cpu", None, None)])
def test_without_a_torch_for_cuda_there_is_no_setting(
    nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch, build: TorchBuild | None
) -> None:
    pretend_gpus(nvml.card())
    monkeypatch.setattr("memdoctor.probes.remembered.torch_build", lambda: build)
    assert setting_here("Tesla T4") is None


def test_the_file_is_where_caches_are(tmp_path: Path) -> None:
    home, caches = str(tmp_path / "me"), str(tmp_path / "caches")
    file = Path("memdoctor") / "contexts.json"
    assert cache_file({"XDG_CACHE_HOME": caches, "HOME": home}) == tmp_path / "caches" / file
    for environ in ({"HOME": home}, {"XDG_CACHE_HOME": "not/absolute", "HOME": home}):
        assert cache_file(environ) == tmp_path / "me" / ".cache" / file
    assert cache_file({}) is None
    assert remember(SETTING, CONTEXT, {}) == "there is no directory for caches"
    assert remembered({}) == ()
