"""Probes that were made before: found under the same request in the same surroundings alone, and equal to the byte."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from memdoctor.errors import InputError, MeasureError, MemdoctorError, TooSlow, UsageError, WorkerError
from memdoctor.probes import cached
from memdoctor.probes.cached import Cache, Result, Usage, open_cache, usage
from memdoctor.probes.kept_files import KeptFiles
from memdoctor.probes.pool import Pool, Request
from memdoctor.probes.resolve import FACTORY_KEY, ModelFacts
from memdoctor.records import (
    Block,
    Category,
    Device,
    Event,
    Examination,
    Phase,
    PhaseName,
    Provenance,
    RanOut,
    SegmentEvent,
    Timeline,
    VerificationPlan,
    Workload,
)

TINY = {
    "model_type": "bert", "vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 16,
}  # fmt: skip
CARD = Device(
    name="card", total_bytes=1 << 30, compute_capability="7.5", context_bytes=1 << 20, context_error_bytes=0,
    context_source="by hand", source="by hand",
)  # fmt: skip
ASKED = Request(Workload(model="tiny", batch_size=1, seq_length=4), CARD, ModelFacts("tiny", TINY, "by hand", 16))
PROVENANCE = Provenance(
    mode="simulated", memdoctor="0.1.0", torch="2.13.0", transformers="5.24.0", python="3.11.7",
    created="2030-01-01T00:00:00+00:00", model_source="by hand", attention_kernels=("eager",), seconds=0.125,
    notes=("a note",),
)  # fmt: skip


def examination() -> Examination:
    """One block, born as the last memory goes."""
    block = Block(
        bytes=100, category=Category.ACTIVATIONS, module="bert", op="aten.mm.default", dtype="float32", shape=(5, 5),
        allocated_bytes=512, address=0,
    )  # fmt: skip
    phases = (Phase(1, PhaseName.FORWARD, 0, 2),)
    timeline = Timeline((block,), (Event(0, 100), Event(0, -100)), phases, (SegmentEvent(0, 2 << 20),), (2,))
    return Examination(ASKED.workload, CARD, PROVENANCE, RanOut(100, 50, 1, 2 << 20, 7, 8), timeline)


def cache(directory: Path, **environ: str) -> Cache:
    """A cache of a process of its own."""
    found = open_cache({"MEMDOCTOR_CACHE": str(directory), **environ})
    assert found is not None
    return found


def kept(directory: Path, request: Request = ASKED, result: Result | None = None, **environ: str) -> None:
    """Keep a result, the examination unless told."""
    cache(directory, **environ).remember(request, result or examination())


def test_what_was_kept_is_recalled_to_the_byte(tmp_path: Path) -> None:
    assert cache(tmp_path).recall(ASKED) is None
    kept(tmp_path)
    assert cache(tmp_path).recall(ASKED) == examination()


@pytest.mark.parametrize(
    "other",
    [
        replace(ASKED, workload=replace(ASKED.workload, batch_size=2)),
        replace(ASKED, workload=replace(ASKED.workload, freeze=("bert",))),
        replace(ASKED, device=replace(CARD, total_bytes=CARD.total_bytes + 1)),
        replace(ASKED, device=replace(CARD, other_processes_bytes=1)),
        replace(ASKED, device=replace(CARD, alloc_conf="expandable_segments:True")),
        replace(ASKED, facts=replace(ASKED.facts, config={**TINY, "hidden_size": 16})),
        replace(ASKED, facts=replace(ASKED.facts, source="the hub")),
        replace(ASKED, steps=3),
    ],
)  # fmt: skip
def test_another_request_is_another(tmp_path: Path, other: Request) -> None:
    kept(tmp_path)
    assert cache(tmp_path).recall(other) is None


def test_how_long_a_probe_may_take_and_how_the_config_is_ordered_are_no_part_of_it(tmp_path: Path) -> None:
    kept(tmp_path)
    backwards = dict(reversed(TINY.items()))
    assert cache(tmp_path).recall(replace(ASKED, time_limit=1.0)) == examination()
    assert cache(tmp_path).recall(replace(ASKED, facts=replace(ASKED.facts, config=backwards))) == examination()


def test_other_surroundings_are_others(tmp_path: Path) -> None:
    kept(tmp_path)
    other = cache(tmp_path, CUBLAS_WORKSPACE_CONFIG=":0:0")
    assert other.recall(ASKED) is None
    kept(tmp_path, CUBLAS_WORKSPACE_CONFIG=":0:0")
    assert other.recall(ASKED) == examination()


def test_in_surroundings_that_cannot_be_told_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path)

    def unreadable(environ: Mapping[str, str]) -> str:
        raise PermissionError(13, "Permission denied")

    for found in (lambda environ: None, unreadable):
        monkeypatch.setattr(cached, "surroundings", found)
        assert cache(tmp_path).recall(ASKED) is None
        kept(tmp_path)
    assert usage({"MEMDOCTOR_CACHE": str(tmp_path)}) == Usage(tmp_path / "probes", 1, _size(tmp_path))


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / "probes").iterdir())


def test_what_was_probed_while_the_code_was_changed_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing = cache(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(cached, "surroundings", lambda environ: "others")
        changing.remember(ASKED, examination())
    assert cache(tmp_path).recall(ASKED) is None


@pytest.mark.parametrize(
    "never",
    [
        replace(ASKED, facts=ModelFacts("a:b", {FACTORY_KEY: "a:b"}, "factory a:b", None)),
        replace(ASKED, verification=VerificationPlan(loop="trainer")),
    ],
)
def test_a_users_own_code_and_a_verification_never_are(tmp_path: Path, never: Request) -> None:
    kept(tmp_path, never)
    assert cache(tmp_path).recall(never) is None
    assert not (tmp_path / "probes").exists()


def told(error: Any) -> tuple[str, str, str]:
    """What an error says."""
    assert type(error) is InputError
    return error.what, error.why, error.hint


def test_that_a_model_refuses_settings_is_kept_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path, result=InputError("no such head", why="it has none", hint="another"))
    assert told(cache(tmp_path).recall(ASKED)) == ("no such head", "it has none", "another")
    now = time.time()
    for later, holds in ((86300, True), (86500, False), (-100, False)):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        assert (cache(tmp_path).recall(ASKED) is not None) == holds


@pytest.mark.parametrize("kind", [MeasureError, WorkerError, TooSlow, UsageError])
def test_what_may_pass_is_not(tmp_path: Path, kind: type[MemdoctorError]) -> None:
    kept(tmp_path, result=kind("not now"))
    assert cache(tmp_path).recall(ASKED) is None


@pytest.mark.parametrize(
    "value",
    [
        {}, {"examination": {}}, {"examination": 7}, {"refusal": {"what": "no"}, "told": 1e9},
        {"refusal": [], "told": 0}, {"refusal": {"what": "no", "why": "", "hint": ""}},
    ],
)  # fmt: skip
def test_a_document_that_is_none_of_these_is_not_there(tmp_path: Path, value: dict[str, Any]) -> None:
    kept(tmp_path)
    (path,) = (tmp_path / "probes").iterdir()
    KeptFiles(tmp_path / "probes").write(path.name.partition(".")[0], value)
    assert cache(tmp_path).recall(ASKED) is None
    kept(tmp_path)
    assert cache(tmp_path).recall(ASKED) == examination()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Request], list[Result]]:
    """A directory, and what was asked and found in real workers: two examinations and a refusal."""
    directory = tmp_path_factory.mktemp("cache")
    sizes = [replace(ASKED, workload=replace(ASKED.workload, batch_size=batch)) for batch in (1, 2)]
    asked = [sizes[0], replace(ASKED, workload=replace(ASKED.workload, freeze=("nothing",))), sizes[1]]
    with Pool() as pool:
        found = cache(directory).attempt(pool, asked, lambda *_: None)
    return directory, asked, found


def test_what_a_worker_found_comes_back_without_one(filled: tuple[Path, list[Request], list[Result]]) -> None:
    directory, asked, found = filled
    counted: list[Request] = []
    with Pool() as pool:
        again = cache(directory)
        recalled = again.attempt(pool, asked, lambda request, _: counted.append(request))
        assert not [child for child in psutil.Process().children() if "memdoctor.probes.worker" in child.cmdline()]
    assert (recalled[0], recalled[2]) == (found[0], found[2])
    assert told(recalled[1]) == told(found[1])
    assert (again.recalled, counted) == (3, asked)


def test_only_what_is_missing_is_probed(filled: tuple[Path, list[Request], list[Result]]) -> None:
    directory, asked, found = filled
    third = replace(ASKED, workload=replace(ASKED.workload, batch_size=3))
    mixed = cache(directory)
    counted: list[Request] = []
    with Pool() as pool:
        results = mixed.attempt(pool, [third, asked[0], third], lambda request, _: counted.append(request))
    assert results[1] == found[0]
    assert isinstance(results[0], Examination)
    assert results[0].workload.batch_size == 3
    assert (mixed.recalled, counted) == (1, [asked[0], third, third])
    assert cache(directory).recall(third) in (results[0], results[2])


def test_what_was_found_before_a_failure_is_kept(filled: tuple[Path, list[Request], list[Result]]) -> None:
    directory = filled[0]
    good = replace(ASKED, workload=replace(ASKED.workload, batch_size=4))
    late = replace(ASKED, workload=replace(ASKED.workload, batch_size=5), time_limit=0.001)
    with Pool() as pool:
        pool.examine([ASKED, ASKED])  # so that no worker has yet to import torch
        with pytest.raises(TooSlow):
            cache(directory).attempt(pool, [good, good, late], lambda *_: None)
    assert isinstance(cache(directory).recall(good), Examination)


def test_where_it_is_and_that_it_is_off(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert usage(home) == Usage(tmp_path / ".cache" / "memdoctor" / "probes", 0, 0)
    assert usage({"XDG_CACHE_HOME": str(tmp_path)}) == Usage(tmp_path / "memdoctor" / "probes", 0, 0)
    assert usage({**home, "MEMDOCTOR_CACHE": ""}) == usage(home)
    assert usage({**home, "MEMDOCTOR_CACHE": "here"}) == Usage(Path.cwd() / "here" / "probes", 0, 0)
    for environ in ({**home, "MEMDOCTOR_CACHE": "off"}, {"MEMDOCTOR_CACHE": "OFF"}, {}):
        assert open_cache(environ) is None
        assert usage(environ) is None
