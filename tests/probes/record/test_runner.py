"""Cell after cell, with a stand-in that measures: order, time, failures, what is there already, a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from memdoctor.errors import InputError, MeasureError, TooSlow, WorkerError
from memdoctor.probes.pool import Bug
from memdoctor.probes.record.files import MOST_BYTES, Versions
from memdoctor.probes.record.grid import Cell, cell
from memdoctor.probes.record.runner import Limits, Recorder, Result, State
from memdoctor.records import Examination, RanOut, Workload
from memdoctor.storage import load_examination

CELLS = (
    cell("bert-base 1x128 fp32 sdpa", 10, "a"),
    cell("bert-base 2x128 bf16 sdpa", 10, "b"),
    cell("distilbert 8x512 fp32 eager", 10, "c"),
)
FILES = [f"h200-{one.name}.json.gz" for one in CELLS]
HERE = Versions("2.11.0", "5.17.0", "0.1.0")
ENDED = "its worker process was killed (SIGKILL)"


@dataclass(slots=True)
class Bench:
    """A clock that only measuring moves on, and a GPU that answers as it is told, with ``seconds`` for each step."""

    recording: Callable[..., Examination]
    seconds: float = 5.0
    errors: dict[str, BaseException] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    now: float = 1000.0
    asked: list[tuple[str, int, float]] = field(default_factory=list)

    def measure(self, workload: Workload, seconds: float) -> Examination:
        self.asked.append((workload.model, workload.batch_size, seconds))
        self.now += self.seconds
        if error := self.errors.get(f"{workload.model} {workload.batch_size}"):
            raise error
        return self.recording(**{"workload": workload, **self.made})

    def recorder(self, folder: Path, run: float = 240.0, one: float = 60.0, **more: Any) -> Recorder:
        return Recorder(self.measure, folder, HERE, Limits(run, one), clock=lambda: self.now, **more)

    def run(self, folder: Path, cells: Sequence[Cell] = CELLS, **more: Any) -> list[Result]:
        return list(self.recorder(folder, **more).run(cells))


@pytest.fixture
def bench(recording: Callable[..., Examination]) -> Bench:
    return Bench(recording)


def states(results: Sequence[Result]) -> list[State]:
    return [result.state for result in results]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_cells_are_measured_in_their_order_and_each_is_written_at_once(bench: Bench, tmp_path: Path) -> None:
    for number, result in enumerate(bench.recorder(tmp_path).run(CELLS), start=1):
        assert result.state is State.RECORDED
        assert (result.cell, result.file) == (CELLS[number - 1].name, FILES[number - 1])
        assert names(tmp_path) == sorted(FILES[:number])
        assert result.size_bytes == (tmp_path / result.file).stat().st_size
    assert [asked[:2] for asked in bench.asked] == [
        ("bert-base-uncased", 1), ("bert-base-uncased", 2), ("distilbert-base-uncased", 8),
    ]  # fmt: skip
    assert load_examination(tmp_path / FILES[1]).workload == CELLS[1].workload


def test_two_runs_write_the_same_bytes(bench: Bench, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        bench.run(tmp_path / folder)
    for file in FILES:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_no_cell_is_begun_that_would_not_finish(bench: Bench, tmp_path: Path) -> None:
    """Each takes 5 s, of which the first one's step says it took 2: after 10 s, 2 are left."""
    results = bench.run(tmp_path, run=12.0)
    assert states(results) == [State.RECORDED, State.RECORDED, State.NOT_REACHED]
    assert results[2].reason == "2 s were left, it takes 5 s"
    assert names(tmp_path) == sorted(FILES[:2])


def test_a_smaller_model_is_still_begun_where_a_larger_one_would_not_finish(bench: Bench, tmp_path: Path) -> None:
    small, again = replace(CELLS[2], name="small"), replace(CELLS[2], name="small-again")
    recorder = bench.recorder(tmp_path, run=21.0)
    results = []
    for result in recorder.run([CELLS[0], small, CELLS[0], again]):
        results.append(result)
        bench.seconds = 1.0 if len(results) != 1 else 12.0
    # bert 5 s (its own 2), distilbert 12 s: 4 are left for a BERT that took 2, and then 3 for what takes 12.
    assert states(results) == [State.RECORDED, State.RECORDED, State.RECORDED_BEFORE, State.NOT_REACHED]


def test_a_worker_that_starts_again_makes_no_cell_look_slow(bench: Bench, tmp_path: Path) -> None:
    """What comes after a failure takes 20 s, of which its step says that it took 2: so does the next."""
    bench.errors = {"bert-base-uncased 2": WorkerError("the probe did not finish", why=ENDED)}
    recorder = bench.recorder(tmp_path, run=33.0)
    results = []
    for result in recorder.run([CELLS[0], CELLS[1], CELLS[2], replace(CELLS[2], name="again")]):
        results.append(result)
        bench.seconds = 20.0 if len(results) == 2 else 1.0
    assert states(results) == [State.RECORDED, State.FAILED, State.RECORDED, State.RECORDED]


def test_a_cell_has_no_more_time_than_the_run(bench: Bench, tmp_path: Path) -> None:
    bench.run(tmp_path, run=16.0, one=10.0)
    assert [asked[2] for asked in bench.asked] == [10.0, 10.0, 6.0]


def test_a_cell_that_fails_is_told_and_the_next_goes_on(bench: Bench, tmp_path: Path) -> None:
    bench.errors = {"bert-base-uncased 2": WorkerError("the probe did not finish", why=ENDED)}
    results = bench.run(tmp_path)
    assert states(results) == [State.RECORDED, State.FAILED, State.RECORDED]
    assert results[1].reason == f"the probe did not finish: {ENDED}"
    assert names(tmp_path) == sorted([FILES[0], FILES[2]])


def test_what_nobody_foresaw_fails_one_cell_and_keeps_its_traceback(bench: Bench, tmp_path: Path) -> None:
    bench.errors = {"bert-base-uncased 2": Bug("Traceback ...\n  somewhere\nKeyError: 'x'\n")}
    results = bench.run(tmp_path)
    assert states(results) == [State.RECORDED, State.FAILED, State.RECORDED]
    assert results[1].reason == "bug: KeyError: 'x'"
    assert results[1].detail == "Traceback ...\n  somewhere\nKeyError: 'x'\n"


def test_the_same_reason_twice_before_anything_is_recorded_is_the_machine(bench: Bench, tmp_path: Path) -> None:
    bench.errors = {
        "bert-base-uncased 1": MeasureError("batch 1 cannot be measured", why="CUDA is not available"),
        "bert-base-uncased 2": MeasureError("batch 2 cannot be measured", why="CUDA is not available"),
    }
    found = []
    with pytest.raises(MeasureError, match="batch 2 cannot be measured") as raised:
        found += bench.recorder(tmp_path).run(CELLS)
    assert raised.value.why == "CUDA is not available"
    assert len(bench.asked) == 2
    assert names(tmp_path) == []


def test_cells_that_are_slow_say_nothing_of_the_machine(bench: Bench, tmp_path: Path) -> None:
    slow = TooSlow("did not finish", why="it took longer than 60 s", hint="more time")
    bench.errors = {"bert-base-uncased 1": slow, "bert-base-uncased 2": slow}
    results = bench.run(tmp_path)
    assert states(results) == [State.FAILED, State.FAILED, State.RECORDED]
    assert results[0].hint == "more time"


def test_two_reasons_are_two_cells(bench: Bench, tmp_path: Path) -> None:
    bench.errors = {
        "bert-base-uncased 1": WorkerError("did not finish", why="it took longer than 60 s"),
        "bert-base-uncased 2": WorkerError("did not finish", why=ENDED),
    }
    assert states(bench.run(tmp_path)) == [State.FAILED, State.FAILED, State.RECORDED]


def test_running_out_of_memory_is_a_recording(bench: Bench, tmp_path: Path) -> None:
    bench.made = {"outcome": RanOut(100, 50, 1, 200, 1000, 2000)}
    results = bench.run(tmp_path, CELLS[:1])
    assert states(results) == [State.RECORDED]
    assert results[0].reason == "ran out of memory"
    assert load_examination(tmp_path / FILES[0]).outcome == RanOut(100, 50, 1, 200, 1000, 2000)


def test_a_recording_that_is_too_large_is_kept_and_told(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memdoctor.probes.record.runner.MOST_BYTES", 100)
    (result,) = bench.run(tmp_path, CELLS[:1])
    assert "are more than a recording should have (100 B)" in result.reason
    assert names(tmp_path) == FILES[:1]
    assert MOST_BYTES == 200 * 1024


def test_the_first_recording_tells_what_the_card_cannot_do(bench: Bench, tmp_path: Path) -> None:
    device = replace(bench.recording().device, name="Tesla T4", compute_capability="7.5")
    bench.made = {"device": device}
    results = bench.run(tmp_path)
    assert states(results) == [State.RECORDED, State.SKIPPED, State.RECORDED]
    assert results[1].reason == "compute capability 7.5 has no bf16 arithmetic"
    assert results[0].file == "t4-bert-base-1x128-fp32-sdpa.json.gz"


def test_what_does_not_fit_is_skipped_or_wanted(bench: Bench, tmp_path: Path) -> None:
    large = replace(CELLS[2], needs_mib=1 << 20)
    assert states(bench.run(tmp_path, [CELLS[0], large])) == [State.RECORDED, State.SKIPPED]
    results = bench.run(tmp_path, [CELLS[0], large], running_out=True)
    # 128 GiB and a quarter are 163,840 MiB: 157,246 more than 8 samples take, in steps of 647.
    assert [(result.cell, result.state) for result in results] == [
        (CELLS[2].name, State.RECORDED), (CELLS[0].name, State.RECORDED_BEFORE),
        ("bert-base-252x512-fp32-eager", State.RECORDED),
    ]  # fmt: skip


def test_a_second_run_goes_on_where_the_first_ended(bench: Bench, tmp_path: Path) -> None:
    bench.run(tmp_path, CELLS[:2])
    bench.asked.clear()
    results = bench.run(tmp_path)
    assert [asked[0] for asked in bench.asked] == ["distilbert-base-uncased"]  # which also tells the card
    assert [(result.cell, result.state) for result in results] == [
        (CELLS[2].name, State.RECORDED), (CELLS[0].name, State.RECORDED_BEFORE),
        (CELLS[1].name, State.RECORDED_BEFORE),
    ]  # fmt: skip


def test_where_all_is_recorded_one_step_finds_out_which_card_it_is(bench: Bench, tmp_path: Path) -> None:
    bench.run(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    bench.asked.clear()
    bench.made = {"created": "tomorrow"}
    assert states(bench.run(tmp_path)) == [State.RECORDED_BEFORE] * 3
    assert len(bench.asked) == 1
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == before


def test_a_step_that_was_skipped_before_is_skipped_again(bench: Bench, tmp_path: Path) -> None:
    """It is the only one that is not there, so it runs to tell the card, and is not kept."""
    bench.made = {"device": replace(bench.recording().device, name="Tesla T4", compute_capability="7.5")}
    bench.run(tmp_path)
    results = bench.run(tmp_path)
    assert [(result.cell, result.state) for result in results][:1] == [(CELLS[1].name, State.SKIPPED)]
    assert states(results)[1:] == [State.RECORDED_BEFORE] * 2
    assert len(names(tmp_path)) == 2


def test_another_card_records_beside_the_first(bench: Bench, tmp_path: Path) -> None:
    bench.run(tmp_path, CELLS[:1])
    bench.made = {"device": replace(bench.recording().device, name="NVIDIA A100-SXM4-80GB")}
    assert states(bench.run(tmp_path, CELLS[:1])) == [State.RECORDED]
    assert names(tmp_path) == [f"a100-80gb-{CELLS[0].name}.json.gz", FILES[0]]


def test_a_recording_of_other_versions_is_kept_unless_forced(bench: Bench, tmp_path: Path) -> None:
    bench.made = {"torch": "2.9.0+cu128"}
    bench.run(tmp_path, CELLS[:1])
    bench.made = {}
    (kept,) = bench.run(tmp_path, CELLS[:1])
    assert kept.state is State.SKIPPED
    assert kept.reason == ("recorded with torch 2.9.0, transformers 5.17.0, memdoctor 0.1.0; --force records it anew")
    assert load_examination(tmp_path / FILES[0]).provenance.torch == "2.9.0+cu128"
    assert states(bench.run(tmp_path, CELLS[:1], force=True)) == [State.RECORDED]
    assert load_examination(tmp_path / FILES[0]).provenance.torch == "2.11.0+cu130"


def test_a_broken_file_is_told_and_kept(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / FILES[1]).write_bytes(b"\x1f\x8bbroken")
    results = bench.run(tmp_path, CELLS[:2])
    assert states(results) == [State.RECORDED, State.SKIPPED]
    assert "broken" in results[1].reason
    assert (tmp_path / FILES[1]).read_bytes() == b"\x1f\x8bbroken"


def test_no_step_is_run_for_a_broken_file_alone(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / FILES[0]).write_bytes(b"broken")
    (skipped,) = bench.run(tmp_path, CELLS[:1])
    assert (skipped.state, skipped.file, bench.asked) == (State.SKIPPED, FILES[0], [])
    assert skipped.reason.endswith(f"{FILES[0]} is broken or not JSON; --force records it anew")
    assert states(bench.run(tmp_path, CELLS[:2])) == [State.RECORDED, State.SKIPPED]  # the other tells the card
    assert [asked[:2] for asked in bench.asked] == [("bert-base-uncased", 2)]
    assert states(bench.run(tmp_path, CELLS[:1], force=True)) == [State.RECORDED]
    assert load_examination(tmp_path / FILES[0]).workload == CELLS[0].workload


def test_a_full_disk_is_one_error_and_what_was_written_is_whole(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.recorder(tmp_path).run(CELLS)
    next(run)
    first = (tmp_path / FILES[0]).read_bytes()

    def full(*arguments: Any, **more: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("memdoctor.storage.os.fdopen", full)
    with pytest.raises(InputError, match="cannot write") as raised:
        next(run)
    assert raised.value.exit_code == 5
    assert raised.value.why == "No space left on device"
    assert "make room" in raised.value.hint
    assert names(tmp_path) == FILES[:1]
    assert (tmp_path / FILES[0]).read_bytes() == first


def test_ctrl_c_keeps_what_is_there(bench: Bench, tmp_path: Path) -> None:
    bench.errors = {"bert-base-uncased 2": KeyboardInterrupt()}
    found = []
    with pytest.raises(KeyboardInterrupt):
        found += bench.recorder(tmp_path).run(CELLS)
    assert names(tmp_path) == FILES[:1]
    assert load_examination(tmp_path / FILES[0]).workload == CELLS[0].workload
