"""The model against recorded traces: the shared ones address by address, and small made-up files for the reader."""

from __future__ import annotations

import copy
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memdoctor.probes.simulated.allocator.comparison import compare
from memdoctor.probes.simulated.allocator.segments import LiveBlock
from memdoctor.probes.simulated.allocator.settings import AllocatorSettings
from memdoctor.probes.simulated.allocator.traces import TraceError, read_trace, true_sizes

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "data" / "allocator_traces"
MIB = 1 << 20

ALLOCATIONS = {
    "cranberrii": 3505,
    "eornn": 1935,
    "kk_memory_ctx128_fullstep_": 6770,
    "kk_memory_ctx256_forward_mixed": 2702,
    "kk_memory_ctx512_forward_": 2057,
    "silmont_bf16_128": 937,
    "wedson_medium_1024_inference": 1280,
    "wedson_medium_128_training": 6526,
}

# A made-up history: a large segment with one live block of 13 MiB (which keeps the rest of 1 MiB), a free
# one that is released, a small segment with a hole, and a new segment below the others.
MADE_UP: dict[str, Any] = {
    "name": "made_up",
    "initial_segments": [
        [100 * MIB, 14 * MIB, "large", 0],
        [200 * MIB, 20 * MIB, "large", 0],
        [300 * MIB, 2 * MIB, "small", 0],
    ],
    "initial_live_blocks": [[300 * MIB, 100], [100 * MIB, 13 * MIB], [300 * MIB + 1024, 512]],
    "events": [
        ["n", -5, 0, 0],
        ["F", 200 * MIB, 20 * MIB, 0],
        ["a", 300 * MIB + 512, 512, 0],
        ["S", 50 * MIB, 20 * MIB, 0],
        ["a", 50 * MIB, 2 * MIB, 0],
        ["a", 300 * MIB + 1536, 1000, 0],
        ["r", 100 * MIB, 13 * MIB, 0],
        ["f", 100 * MIB, 13 * MIB, 0],
        ["a", 100 * MIB, 14 * MIB, 0],
    ],
    "final_segments": [
        [50 * MIB, 20 * MIB, "large", 0, 2 * MIB],
        [100 * MIB, 14 * MIB, "large", 0, 14 * MIB],
        [300 * MIB, 2 * MIB, "small", 0, 2560],
    ],
    "summary": {"peak_reserved": 36 * MIB},
}


def save(folder: Path, data: object, name: str = "made_up.json.gz") -> Path:
    """Write ``data`` as a trace file."""
    path = folder / name
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return path


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return the made-up trace after ``change`` was done to it."""
    data = copy.deepcopy(MADE_UP)
    change(data)
    return data


def check(*paths: Path | str) -> subprocess.CompletedProcess[str]:
    """Run the command on ``paths``."""
    return subprocess.run(
        [sys.executable, "-m", "memdoctor.probes.simulated.allocator", *map(str, paths)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


# The shared traces


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no recorded traces at {SHARED}")
@pytest.mark.parametrize("name", sorted(ALLOCATIONS))
def test_every_allocation_of_a_recorded_trace_is_where_the_gpu_put_it(name: str) -> None:
    trace = read_trace(SHARED / f"{name}.json.gz")
    comparison = compare(trace)
    assert (comparison.name, comparison.allocations) == (name, ALLOCATIONS[name])
    assert comparison.exact == comparison.allocations
    assert comparison.peak_reserved == comparison.recorded_peak_reserved
    assert comparison.releases_exact
    assert comparison.final_segments == trace.final_segments
    assert comparison.is_exact


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no recorded traces at {SHARED}")
def test_other_rules_do_not_reproduce_a_recorded_trace() -> None:
    # The proof has teeth: one wrong threshold, and it fails.
    comparison = compare(read_trace(SHARED / "eornn.json.gz"), AllocatorSettings(minimum_block=1024))
    assert comparison.exact < comparison.allocations


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no recorded traces at {SHARED}")
def test_the_command_agrees_on_all_shared_traces() -> None:
    result = check(*sorted(SHARED.glob("*.json.gz")))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == (
        "8 traces: 25,712 of 25,712 allocations at the recorded address, 8 of 8 peaks of reserved memory equal"
    )


# The reader


def test_the_made_up_trace_is_reproduced(tmp_path: Path) -> None:
    trace = read_trace(save(tmp_path, MADE_UP))
    comparison = compare(trace)
    assert (comparison.allocations, comparison.exact) == (4, 4)
    assert (comparison.peak_reserved, comparison.recorded_peak_reserved) == (36 * MIB, 36 * MIB)
    assert comparison.releases_exact
    assert comparison.final_segments == trace.final_segments


def test_live_blocks_own_the_rest_that_was_not_split_off() -> None:
    requests = [(0, 2 * MIB - 5), (3 * MIB, 2 * MIB), (6 * MIB + 512, 5 * MIB), (11 * MIB + 512, 6 * MIB)]
    assert true_sizes(requests, 18 * MIB, AllocatorSettings()) == (
        LiveBlock(0, 3 * MIB, 2 * MIB - 5),  # 1 MiB up to the next block: no large block is so small
        LiveBlock(3 * MIB, 2 * MIB, 2 * MIB),  # 1 MiB and 512 bytes: a free block
        LiveBlock(6 * MIB + 512, 5 * MIB, 5 * MIB),
        LiveBlock(11 * MIB + 512, 7 * MIB - 512, 6 * MIB),  # up to the end of the segment
    )
    assert true_sizes([(0, 1), (1024, 512)], 2 * MIB, AllocatorSettings()) == (
        LiveBlock(0, 512, 1),
        LiveBlock(1024, 512, 512),
    )
    assert true_sizes([], 2 * MIB, AllocatorSettings()) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("events"), "no entry 'events'"),
        (lambda data: data.pop("summary"), "no entry 'summary'"),
        (lambda data: data["summary"].pop("peak_reserved"), "no entry 'peak_reserved'"),
        (lambda data: data.update(events=7), "'events' is not a list of rows"),
        (lambda data: data["events"].append(["a", 1]), "'events' is not a list of rows of 4"),
        (lambda data: data["events"].append(["a", "x", 512, 0]), "'x' is not an address"),
        (lambda data: data["events"].append(["a", True, 512, 0]), "True is not an address"),
        (lambda data: data["events"].append(["a", -512, 512, 0]), "-512 is not an address"),
        (lambda data: data["events"].append(["a", 0.5, 512, 0]), "0.5 is not an address"),
        (lambda data: data["events"].append(["a", 1 << 63, 512, 0]), "is not an address"),
        (lambda data: data["events"].append(["a", 0, 0, 0]), "0 bytes"),
        (lambda data: data["events"].append(["a", 100 * MIB, 512, 0]), "event 7 does not fit"),
        (lambda data: data["events"].append(["f", 101 * MIB, 512, 0]), "event 7 does not fit"),
        (lambda data: data["events"].append(["a", 0, 512, 9]), "more than one stream"),
        (lambda data: data["events"].append([["a"], 0, 512, 0]), "'a'. is not an action"),
        (lambda data: data.update(events=[["o", 0, 512, 0]]), "no allocation"),
        (lambda data: data["initial_segments"].append([90 * MIB, 20 * MIB, "large", 0]), "segments overlap"),
        (lambda data: data["initial_segments"].append([0, 2 * MIB, "tiny", 0]), "'tiny' is neither"),
        (lambda data: data["initial_live_blocks"].append([0, 512]), "lies in no segment"),
        (lambda data: data["initial_live_blocks"].append([302 * MIB - 512, 513]), "reaches over"),
        (lambda data: data["initial_live_blocks"].append([300 * MIB + 1024, 8]), "reaches over"),
    ],
)
def test_what_does_not_add_up_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    path = save(tmp_path, changed(change))
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: not an allocator trace: ")


# Histories that the model does not follow


def test_an_address_that_differs_is_counted(tmp_path: Path) -> None:
    def move(data: dict[str, Any]) -> None:
        data["events"][2][1] += MIB

    comparison = compare(read_trace(save(tmp_path, changed(move))))
    assert (comparison.exact, comparison.is_exact) == (3, False)


def test_a_release_that_differs_is_told(tmp_path: Path) -> None:
    comparison = compare(read_trace(save(tmp_path, changed(lambda data: data["events"].pop(1)))))
    assert (comparison.releases_exact, comparison.is_exact) == (True, False)  # it was not told of any release
    comparison = compare(read_trace(save(tmp_path, changed(lambda data: data["events"][1].__setitem__(1, 0)))))
    assert not comparison.releases_exact


def test_a_recorded_place_that_is_taken_is_not_used(tmp_path: Path) -> None:
    def collide(data: dict[str, Any]) -> None:
        data["events"][3][1] = data["events"][4][1] = 110 * MIB

    comparison = compare(read_trace(save(tmp_path, changed(collide))))
    assert (comparison.exact, comparison.peak_reserved) == (3, 36 * MIB)
    assert comparison.final_segments[-1].address == 302 * MIB


# The command


def test_the_command_prints_a_line_a_trace_and_one_for_all(tmp_path: Path) -> None:
    result = check(save(tmp_path, MADE_UP), save(tmp_path, MADE_UP | {"name": "twin"}, "twin.json.gz"))
    assert (result.returncode, result.stderr) == (0, "")
    figures = "4 allocations, 4 at the recorded address; peak reserved 37,748,736 bytes recorded, 37,748,736 modelled"
    assert result.stdout.splitlines() == [
        f"made_up: {figures}",
        f"twin: {figures}",
        "2 traces: 8 of 8 allocations at the recorded address, 2 of 2 peaks of reserved memory equal",
    ]


def test_the_command_fails_when_an_address_or_a_peak_differs(tmp_path: Path) -> None:
    moved = changed(lambda data: data["events"][2].__setitem__(1, 301 * MIB))
    result = check(save(tmp_path, moved))
    assert (result.returncode, result.stderr) == (1, "")
    assert "4 allocations, 3 at the recorded address" in result.stdout
    result = check(save(tmp_path, MADE_UP | {"summary": {"peak_reserved": 36 * MIB + 1}}))
    assert result.returncode == 1
    assert result.stdout.endswith("0 of 1 peaks of reserved memory equal\n")


def test_the_command_without_a_trace_shows_its_usage() -> None:
    result = check()
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("usage: python -m memdoctor.probes.simulated.allocator")


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"not gzip",
        gzip.compress(b"not json", mtime=0),
        gzip.compress(b"\xff\xfe", mtime=0),
        gzip.compress(json.dumps(MADE_UP).encode(), mtime=0)[:-20],
        gzip.compress(b"[]", mtime=0),
        gzip.compress(b"{}", mtime=0),
        gzip.compress(b"[" * 100_000, mtime=0),
        gzip.compress(json.dumps(MADE_UP | {"initial_segments": None}).encode(), mtime=0),
    ],
    ids=["missing", "empty", "not_gzip", "not_json", "not_utf8", "cut_off", "list", "no_keys", "deep", "wrong_type"],
)
def test_a_broken_file_is_one_line_and_exit_code_5(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.json.gz"
    if content is not None:
        path.write_bytes(content)
    result = check(path)
    assert (result.returncode, result.stdout) == (5, "")
    assert result.stderr.startswith(f"{path}: ")
    assert len(result.stderr.splitlines()) == 1
