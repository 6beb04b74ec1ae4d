"""The whole command in a process of its own, where only torch, transformers, click and pydantic are there.

Without a GPU the simulated probe stands in for the one that measures: the same pool, worker, files and tables.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from memdoctor.catalogue import find_model
from memdoctor.probes.record.files import file_of, read_run, save
from memdoctor.probes.record.grid import DEFAULT
from memdoctor.probes.record.shell import THIS_GPU, reach_this_checkout
from memdoctor.probes.simulated.probe import simulate
from memdoctor.records import Completed, Workload
from memdoctor.storage import load_examination, read_document

ROOT = Path(__file__).parents[3]
PATIENCE = 120.0  # seconds until what must happen counts as not happening
TINY = "google/bert_uncased_L-2_H-128_A-2"
FIRST, SECOND, THIRD = "distilbert-8x512-fp32-sdpa", "distilbert-32x512-fp16-sdpa", "distilbert-1x128-fp16-sdpa"
ABSENT = ("jinja2", "matplotlib", "pandas", "platformdirs", "psutil", "pynvml", "rich", "rich_click")
# Libraries ask whether others are there before they use them: these must look absent, not broken.
SITECUSTOMIZE = f"""
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in {ABSENT!r} else find(name, path, target)
PathFinder.find_spec = find_spec
import runpy
runpy.run_path({str(ROOT / "tests" / "standins" / "cuda" / "sitecustomize.py")!r})
"""
# A shell starts its background jobs with SIGINT ignored; a user at a terminal has it not.
STAND_IN = """
import resource, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
if limit := int(sys.argv.pop(1)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from memdoctor.probes.record import shell
from memdoctor.records import Backend
shell.BACKEND = Backend.SIMULATED
from memdoctor.probes.record.__main__ import main
main()
"""


@dataclass(frozen=True, slots=True)
class Bare:
    """A Python in which next to nothing is installed."""

    environment: dict[str, str]

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """``python -m memdoctor.probes.record`` to its end."""
        return self._run("-m", "memdoctor.probes.record", *arguments)

    def stand_in(self, *arguments: object, largest_file: int = 0) -> subprocess.CompletedProcess[str]:
        """The same with a simulated GPU; files may have ``largest_file`` bytes, 0 is no limit."""
        return self._run("-c", STAND_IN, largest_file, *arguments)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """As :meth:`stand_in`, without waiting for it."""
        return subprocess.Popen(
            [sys.executable, "-c", STAND_IN, "0", *map(str, arguments)], env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *map(str, arguments)], env=self.environment, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
    return Bare({**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])})


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that end with the test, whatever became of it."""
    running: list[subprocess.Popen[str]] = []
    yield running
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


def eventually(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait for it, for as long as the process runs."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_what_is_absent_is_absent(bare: Bare) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", f"import importlib.util as u; print([u.find_spec(n) for n in {ABSENT!r}])"],
        env=bare.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert asked.stdout.strip() == str([None] * len(ABSENT))


def test_the_cells_are_listed_without_torch(bare: Bare, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch is not to be imported')")
    environment = {**bare.environment, "PYTHONPATH": f"{tmp_path}{os.pathsep}{bare.environment['PYTHONPATH']}"}
    listed = Bare(environment).run("--list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [cell.name for cell in DEFAULT]
    assert all(cell.why in listed.stdout for cell in DEFAULT)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--grid", "huge", "--list"), 2, "there is no grid 'huge'"),
        (("--cells", "gpt*", "--list"), 2, "no cell of the grid default is called gpt*"),
        (("--time-limit", "0"), 2, "--time-limit"),
        ((), 2, "where should recordings go?"),
        (("--table", "nowhere"), 5, "there is no folder nowhere"),
        (("--out", __file__), 5, "for recordings"),
        (("--out", str(Path(__file__).parent)), 5, "holds files that are no recordings"),
        (("--table", str(Path(__file__).parent)), 5, "there are no recordings in"),
    ],
)  # fmt: skip
def test_bad_input_is_one_error(bare: Bare, arguments: tuple[str, ...], code: int, told: str) -> None:
    ran = bare.run(*arguments)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert told in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_a_gpu_the_reason_is_told(bare: Bare, tmp_path: Path) -> None:
    blind = Bare({**bare.environment, "CUDA_VISIBLE_DEVICES": ""})
    ran = blind.run("--out", tmp_path / "out", "--grid", "quick")
    assert (ran.returncode, ran.stdout) == (6, "")
    error = ran.stderr[ran.stderr.index("Error: ") :].splitlines()
    assert len(error) == 3
    assert "GPU" in error[0]
    assert error[1].startswith("  why: ")
    assert error[2] == "  try: memdoctor env says what is wrong; --table compares recordings on machines without a GPU"
    assert ran.stderr.count("failed") == 1  # the second time it is the machine's
    assert "Traceback" not in ran.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.json"]


def test_cells_that_are_too_slow_name_the_option_that_counts(bare: Bare, tmp_path: Path) -> None:
    ran = bare.stand_in("--cells", FIRST, "--cells", THIRD, "--cell-time-limit", "0.05", "--out", tmp_path / "out")
    assert (ran.returncode, ran.stdout) == (6, "")
    assert ran.stderr.count("it took longer than 0.05 s") == 3  # of each cell, and of all
    error = ran.stderr[ran.stderr.index("Error: ") :].splitlines()
    assert error[0] == "Error: nothing was recorded"
    assert error[2] == "  try: a larger --cell-time-limit, and --time-limit where that is less"
    assert [cell["state"] for cell in read_run(tmp_path / "out")] == ["failed", "failed"]


def test_a_broken_installation_is_one_error(bare: Bare, tmp_path: Path) -> None:
    (tmp_path / "transformers.py").write_text("raise ImportError('huggingface-hub is too old')")
    path = os.pathsep.join([str(tmp_path), bare.environment["PYTHONPATH"]])
    ran = Bare({**bare.environment, "PYTHONPATH": path}).run("--grid", "quick", "--out", tmp_path / "out")
    assert (ran.returncode, ran.stdout) == (6, "")
    assert ran.stderr[ran.stderr.index("\nError: ") + 1 :].splitlines() == [
        "Error: transformers cannot be imported",
        "  why: ImportError: huggingface-hub is too old",
        "  try: pip check tells which packages do not go together; memdoctor env lists what is installed",
    ]
    assert "Traceback" not in ran.stderr


def test_recordings_are_compared_on_a_machine_without_a_gpu(bare: Bare, tmp_path: Path) -> None:
    entry = find_model(TINY)
    assert entry is not None
    config = {"model_type": entry.model_type, **entry.config}
    made = simulate(Workload(model=TINY, batch_size=1, seq_length=16), THIS_GPU, config, "the catalogue")
    save(file_of(tmp_path, "T4", "tiny"), made, force=False)
    ran = bare.run("--table", tmp_path, "--out", tmp_path / "elsewhere")
    assert (ran.returncode, ran.stdout) == (5, "")  # before anything is simulated
    assert "there is no directory" in ran.stderr
    (tmp_path / "elsewhere").mkdir()
    ran = bare.run("--table", tmp_path, "--out", tmp_path / "elsewhere")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[:3] == [
        "1 recording, simulated anew",
        "  allocated            1 of 1 exact, 0 too little; error median 0.000 %, largest 0.000 %",
        "  reserved             1 of 1 exact, 0 too little; error median 0.000 %, largest 0.000 %",
    ]
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["table.csv", "table.json", "table.md"]
    assert [path.name for path in tmp_path.glob("*.gz")] == ["t4-tiny.json.gz"]


def test_a_step_is_recorded_on_a_card_that_is_pretended(bare: Bare, tmp_path: Path) -> None:
    """The command as it is: the GPU probe in its worker, on real tensors, over a stand-in of CUDA's allocator."""
    name, mib = "distilbert-2x128-fp32-sdpa-adafactor", 1 << 20
    card = {
        "name": "Tesla T4", "capability": "7.5", "total": 15 << 30, "context": 400 * mib, "others": 200 * mib,
    }  # fmt: skip
    path = os.pathsep.join([bare.environment["PYTHONPATH"], str(ROOT / "tests" / "standins" / "cuda")])
    pretended = Bare({
        **bare.environment, "PYTHONPATH": path, "CUDA_STANDIN": json.dumps(card), "XDG_CACHE_HOME": str(tmp_path / "c"),
    })  # fmt: skip
    ran = pretended.run("--grid", "quick", "--cells", name, "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    found = load_examination(tmp_path / "out" / f"t4-{name}.json.gz")
    assert found.provenance.mode == "measured"
    assert (found.device.context_bytes, found.device.other_processes_bytes) == (400 * mib, 200 * mib)
    (recording,) = read_document(tmp_path / "out" / "table.json")["recordings"]
    rows = {row["what"]: row["difference"] for row in recording["rows"]}
    assert [rows[what] for what in ("parameters", "gradients", "inputs_and_buffers")] == [0, 0, 0]
    assert (recording["recorded"], recording["simulated"]) == ("completed", "completed")


def test_a_grid_is_recorded_and_compared(bare: Bare, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = bare.stand_in("--cells", FIRST, "--cells", THIRD, "--out", out)
    assert ran.returncode == 0, ran.stderr
    assert [(cell["cell"], cell["state"]) for cell in read_run(out)] == [(FIRST, "recorded"), (THIRD, "recorded")]
    for cell in read_run(out):
        found = load_examination(out / cell["file"])
        assert isinstance(found.outcome, Completed)
        assert (out / cell["file"]).stat().st_size == cell["size_bytes"]
    assert "2 recorded, in" in ran.stderr
    assert "allocated            2 of 2 exact" in ran.stdout
    document = read_document(out / "table.json")
    assert [row["exact"] for row in document["summary"] if row["figure"] == "reserved"] == [2]
    assert (out / "table.md").read_text().startswith("# Simulated against measured\n")


def test_a_killed_worker_costs_one_cell(bare: Bare, tmp_path: Path, started: list[subprocess.Popen[str]]) -> None:
    cells = [argument for name in (FIRST, SECOND, THIRD) for argument in ("--cells", name)]
    process = bare.start(*cells, "--out", tmp_path, "--no-table")
    started.append(process)
    eventually(lambda: list(tmp_path.glob(f"*{FIRST}*")), process)
    (worker,) = workers(process)
    used = sum(worker.cpu_times()[:2])
    eventually(lambda: sum(worker.cpu_times()[:2]) > used + 0.2, process)  # it is in the middle of the second
    os.kill(worker.pid, signal.SIGKILL)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (0, "")
    assert [(cell["cell"], cell["state"]) for cell in read_run(tmp_path)] == [
        (FIRST, "recorded"), (SECOND, "failed"), (THIRD, "recorded"),
    ]  # fmt: skip
    assert "SIGKILL" in read_run(tmp_path)[1]["reason"]
    assert "SIGKILL" in errors
    assert not list(tmp_path.glob(f"*{SECOND}*"))


def test_ctrl_c_keeps_what_is_recorded_and_leaves_no_worker(
    bare: Bare, tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    process = bare.start("--cells", FIRST, "--cells", SECOND, "--out", tmp_path)
    started.append(process)
    eventually(lambda: list(tmp_path.glob(f"*{FIRST}*")), process)
    there = workers(process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (130, "")
    assert errors.endswith("Interrupted; what is recorded is whole, and the same command goes on from there.\n")
    assert "Traceback" not in errors
    assert not [worker for worker in there if worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE]
    (file,) = tmp_path.glob("*.json.gz")
    assert isinstance(load_examination(file).outcome, Completed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", file.name]


def test_a_file_that_cannot_be_written_is_one_error_and_those_before_are_whole(bare: Bare, tmp_path: Path) -> None:
    """The system refuses to write more than 18 KiB into a file: the second recording is larger."""
    ran = bare.stand_in("--cells", FIRST, "--cells", SECOND, "--out", tmp_path, largest_file=18 * 1024)
    assert (ran.returncode, ran.stdout) == (5, "")
    assert "Error: cannot write" in ran.stderr
    assert "File too large" in ran.stderr
    assert "make room" in ran.stderr
    assert "Traceback" not in ran.stderr
    (file,) = tmp_path.glob("*.json.gz")
    assert isinstance(load_examination(file).outcome, Completed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", file.name]


def test_workers_find_a_checkout_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    reach_this_checkout()
    assert os.environ["PYTHONPATH"] == f"{ROOT}{os.pathsep}/elsewhere"
