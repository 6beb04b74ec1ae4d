"""What the simulated GPU says under each release of torch: the recorded files, a fresh run, and why any two differ.

The files are made by ``tests/data/releases/record.py``, in an environment of each release. When the simulation changes
on purpose, run it once in each; a difference between two releases that is new must then be explained here.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "data" / "releases" / "record.py"
INSTALLED = ".".join(version("torch").split(".")[:2])
LARGER_WORKSPACE = 33_554_432 - 8_519_680
DROPOUT = "cuDNN attention is passed over for a dropout of 0.1, which is no multiple of 1/16"
WORKSPACE = "cuBLAS has a workspace of 32 MiB on this compute capability too"
GROUPS = "memory-efficient attention takes queries that share keys"
HEADS = "cuDNN attention trains heads of 256 on compute capability 10 too"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Why a workload is another from the newer release on; ``attention`` names the kernels before and after."""

    why: tuple[str, ...]
    attention: tuple[str, str]


def larger_workspace(kernel: str) -> Difference:
    return Difference(why=(WORKSPACE,), attention=(kernel, kernel))


NO_CUDNN = Difference(why=(DROPOUT,), attention=("cudnn", "flash"))
NO_CUDNN_PADDED = Difference(why=(DROPOUT,), attention=("cudnn", "memory-efficient"))
DIFFERENCES: dict[tuple[str, str, str], Difference] = {
    ("fp16, 9.0", "2.11", "2.13"): NO_CUDNN,
    ("fp16, 9.0, padded", "2.11", "2.13"): NO_CUDNN_PADDED,
    ("fp16, 9.0, checkpointing", "2.11", "2.13"): NO_CUDNN,
    ("fp16, 9.0, checkpointing, reentrant", "2.11", "2.13"): NO_CUDNN,
    ("bf16, 9.0, 8 x 512", "2.11", "2.13"): NO_CUDNN,
    ("gpt2, bf16, 9.0", "2.11", "2.13"): NO_CUDNN,
    ("fp16, 10.0", "2.11", "2.13"): Difference(why=(DROPOUT, WORKSPACE), attention=("cudnn", "flash")),
    ("fp16, 10.0, padded", "2.11", "2.13"): Difference(
        why=(DROPOUT, WORKSPACE), attention=("cudnn", "memory-efficient")
    ),
    ("fp16, 10.0, heads of 256, dropout 0.0", "2.11", "2.13"): larger_workspace("flash"),
    ("fp32, 10.0", "2.11", "2.13"): larger_workspace("memory-efficient"),
    ("fp16, 12.0", "2.11", "2.13"): larger_workspace("flash"),
    ("fp16, 11.0", "2.13", "2.14"): larger_workspace("flash"),
    ("llama, fp32, 7.5", "2.13", "2.14"): Difference(why=(GROUPS,), attention=("math", "memory-efficient")),
    ("fp16, 10.0, heads of 256, dropout 0.0", "2.13", "2.14"): Difference(why=(HEADS,), attention=("flash", "cudnn")),
}
# Up to 2.13 the shape function of memory-efficient attention's backward does not know of shared keys.
OWN_SHAPES = {"llama, fp32, 7.5"}


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_releases", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


record = _load()
FILES: dict[str, dict[str, Any]] = record.read_all()
PAIRS = list(pairwise(FILES))


def summary(name: str, release: str) -> dict[str, Any]:
    found = FILES[release]["workloads"][name]
    assert isinstance(found, dict)
    return found


def peaks(name: str, release: str) -> dict[str, int]:
    """By step and phase, the most that is allocated, in bytes."""
    split = [line.rsplit(" ", 1) for line in summary(name, release)["phases"]]
    return {phase: int(nbytes) for phase, nbytes in split}


def test_there_is_a_file_of_each_release_that_is_tested_with_all_workloads() -> None:
    assert list(FILES) == ["2.11", "2.13", "2.14"]
    for release, content in FILES.items():
        assert content["torch"].startswith(f"{release}.")
        assert set(content["workloads"]) == set(record.CASES), f"record {release} anew: {record.__doc__}"


def test_the_installed_release_gives_what_was_recorded() -> None:
    if INSTALLED not in FILES:
        pytest.skip(f"no file of torch {INSTALLED}: {', '.join(FILES)} are recorded")
    if FILES[INSTALLED]["transformers"] != version("transformers"):
        pytest.skip(f"recorded with transformers {FILES[INSTALLED]['transformers']}, not {version('transformers')}")
    fresh = {name: record.summary_of(found) for name, found in record.examine(list(record.CASES)).items()}
    recorded = FILES[INSTALLED]["workloads"]
    assert [name for name in fresh if fresh[name] != recorded[name]] == []


@pytest.mark.parametrize(("older", "newer"), PAIRS)
def test_two_releases_agree_but_for_the_differences_that_are_explained(older: str, newer: str) -> None:
    """Releases that follow one another: any others then agree in what no step between them is said to change."""
    differ = {key for key in record.differences() if key[1:] == (older, newer)}
    assert differ == {key for key in DIFFERENCES if key[1:] == (older, newer)}


@pytest.mark.parametrize(("name", "older", "newer"), DIFFERENCES)
def test_a_difference_is_what_it_is_said_to_be(name: str, older: str, newer: str) -> None:
    expected, before, after = DIFFERENCES[name, older, newer], summary(name, older), summary(name, newer)
    assert (before["attention"], after["attention"]) == expected.attention
    if expected.why == (WORKSPACE,):  # the forward thread's in the first forward, then the backward thread's as well
        assert before["events"] == after["events"]
        for phase, nbytes in peaks(name, newer).items():
            threads = {"0 setup": 0, "1 forward": 1}.get(phase, 2)
            assert nbytes == peaks(name, older)[phase] + threads * LARGER_WORKSPACE


@pytest.mark.parametrize("release", FILES)
def test_the_facts_of_a_release_explain_all_that_is_its_own(release: str) -> None:
    """Any torch, with the row of another in ``releases.py``, gives what that other one gives: nothing else differs."""
    if release == INSTALLED:
        pytest.skip("its facts are those that a fresh simulation has anyway")
    if {content["transformers"] for content in FILES.values()} != {version("transformers")}:
        pytest.skip(f"the files were not recorded with transformers {version('transformers')}")
    names = sorted({name for name, *releases in DIFFERENCES if release in releases and name not in OWN_SHAPES})
    command = [sys.executable, SCRIPT, "--facts-of", release, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    fresh = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in names if fresh[name] != summary(name, release)] == []
