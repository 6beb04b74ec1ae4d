"""Probes in real worker processes: each outcome of a worker is an answer, and none outlives the pool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from memdoctor.errors import InputError, MeasureError, MemdoctorError, TooSlow, WorkerError
from memdoctor.probes.pool import Bug, Pool, Request
from memdoctor.probes.resolve import ModelFacts, resolve_model
from memdoctor.probes.worker import error_of
from memdoctor.records import Backend, Completed, Device, Examination, Workload

PATIENCE = 60.0  # seconds until what must happen counts as not happening
TINY = {
    "model_type": "bert", "vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 16,
}  # fmt: skip
CARD = Device(
    name="card", total_bytes=1 << 30, compute_capability="7.5", context_bytes=1 << 20, context_error_bytes=0,
    context_source="by hand", source="by hand",
)  # fmt: skip
FROM_ELSEWHERE = """
from memdoctor.probes.pool import Pool, Request
from memdoctor.probes.resolve import ModelFacts
from memdoctor.records import Device, Workload
facts = ModelFacts("tiny", {config}, "by hand", 16)
with Pool() as pool:
    print(pool.examine([Request(Workload(model="tiny", seq_length=4), {device}, facts)])[0].outcome)
"""


def request(config: dict[str, Any] | None = None, **workload: Any) -> Request:
    """A probe of a model of a few kilobytes."""
    target = Workload(**{"model": "tiny", "batch_size": 1, "seq_length": 4, **workload})
    return Request(target, CARD, ModelFacts("tiny", {**TINY, **(config or {})}, "by hand", 16))


def workers(of: int | None = None) -> set[psutil.Process]:
    """The living worker processes of this process, or another."""
    found = set()
    for child in psutil.Process(of).children(recursive=True):
        try:
            if "memdoctor.probes.worker" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.add(child)
        except psutil.NoSuchProcess:
            continue
    return found


def eventually(what: str, condition: Any) -> Any:
    """Wait until the condition gives something, and return that."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    pytest.fail(f"{what} did not happen within {PATIENCE:g} s")


def leave(pools: ExitStack) -> None:
    """Leave the pools, and fail instead of waiting for ever where that does not end."""
    leaving = threading.Thread(target=pools.close, daemon=True)
    leaving.start()
    leaving.join(PATIENCE)
    assert not leaving.is_alive(), "the pool does not end"


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Workers for the tests that do not end them."""
    pools = ExitStack()
    yield pools.enter_context(Pool())
    leave(pools)


def test_a_probe_in_a_worker_gives_an_examination(pool: Pool) -> None:
    (examination,) = pool.examine([request()])
    assert isinstance(examination.outcome, Completed)
    assert examination.workload.model == "tiny"
    assert examination.device == CARD
    assert examination.provenance.mode == "simulated"
    assert max(examination.timeline.in_use()) > 0


def test_results_are_in_the_order_of_the_requests(pool: Pool) -> None:
    batches = [4, 1, 3, 2, 4, 1]
    found = pool.examine([request(batch_size=batch) for batch in batches])
    assert [examination.workload.batch_size for examination in found] == batches


def test_the_caller_is_told_of_each_result_in_its_own_thread(pool: Pool) -> None:
    told: list[tuple[Request, threading.Thread]] = []
    requests = [request(batch_size=batch) for batch in (1, 2, 3)]
    pool.examine(requests, lambda asked, _: told.append((asked, threading.current_thread())))
    assert {thread for _, thread in told} == {threading.current_thread()}
    assert sorted(asked.workload.batch_size for asked, _ in told) == [1, 2, 3]


def test_an_attempt_gives_the_error_of_a_request_beside_what_the_others_found(pool: Pool) -> None:
    good, bad = request(batch_size=1), request(freeze=("nothing",))
    found, refused, again = pool.attempt([good, bad, good])
    assert isinstance(found, Examination)
    assert isinstance(again, Examination)
    assert found.timeline == again.timeline
    assert isinstance(refused, InputError)
    assert "matches no parameter" in refused.what


def test_the_same_request_gives_the_same_timeline_in_any_worker(pool: Pool) -> None:
    first, *others = pool.examine([request() for _ in range(4)])
    assert all(other.timeline == first.timeline for other in others)


def test_a_second_batch_of_requests_goes_to_the_same_workers(pool: Pool) -> None:
    requests = [request(batch_size=batch) for batch in (1, 2, 3, 4)]
    pool.examine(requests)
    before = workers()
    pool.examine(requests)
    assert workers() == before
    assert 1 <= len(before) <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("backend", Backend)
def test_no_requests_give_no_examinations_and_start_no_worker(backend: Backend) -> None:
    before = workers()
    with Pool(backend) as pool:
        assert pool.examine([]) == []
        assert workers() == before


def test_a_config_of_any_json_reaches_the_worker_whole(pool: Pool) -> None:
    odd = {"label": 'a "quoted"\nline', "nothing": None, "list": [1, 2.5, "é ±"], "id2label": {"0": "ja"}}
    assert len(pool.examine([request(odd)])) == 1


def test_a_worker_tells_nothing_of_the_users_environment(pool: Pool) -> None:
    """What a report is made of names the model and the versions, not the machine."""
    (examination,) = pool.examine([request()])
    assert str(Path.home()) not in repr(examination.provenance)


def others_than(before: set[psutil.Process]) -> set[psutil.Process]:
    """Workers that are not those of the shared pool."""
    return workers() - before


def at_work(before: set[psutil.Process]) -> set[psutil.Process]:
    """Workers that have run for a while: their request reached them long ago, and torch takes longer to import."""
    return {worker for worker in others_than(before) if sum(worker.cpu_times()[:2]) > 0.3}


# The limit without end is another fact, told here because it costs the start of a worker.
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_leaving_the_pool_leaves_no_process_and_no_open_file() -> None:
    """Two workers, of which the second waits for more when the first has only just done: one word ends each."""
    before, files = workers(), psutil.Process().num_fds()
    pools = ExitStack()
    pool = pools.enter_context(Pool(time_limit=float("inf")))
    assert len(pool.examine([request({"num_hidden_layers": 8}), request()])) == 2
    started = others_than(before)
    assert started
    leave(pools)
    assert others_than(before) == set()
    assert not any(worker.is_running() for worker in started)
    assert psutil.Process().num_fds() == files


def test_an_interruption_while_waiting_leaves_no_process() -> None:
    before = workers()

    def interrupt() -> None:
        eventually("the work of a worker", lambda: at_work(before))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        with Pool() as pool, pytest.raises(KeyboardInterrupt):
            pool.examine([request()])
    finally:
        signal.signal(signal.SIGINT, handler)
        interrupter.join()
    assert others_than(before) == set()


def test_a_pool_that_was_asked_nothing_starts_nothing() -> None:
    before = workers()
    with Pool():
        assert others_than(before) == set()


@pytest.mark.parametrize(
    ("evaluate", "hint"),
    [(False, "a larger --time-limit"), (True, "a larger --time-limit, or less to evaluate")],
)
def test_a_probe_past_the_time_limit_names_the_limit(evaluate: bool, hint: str) -> None:
    before = workers()
    with Pool(time_limit=0.05) as pool, pytest.raises(TooSlow) as caught:
        pool.examine([request(batch_size=3, evaluate=evaluate)])
    assert caught.value.exit_code == 6
    assert "0.05 s" in caught.value.why
    assert caught.value.hint == hint
    assert "tiny at batch 3, length 4" in caught.value.what
    assert others_than(before) == set()


def test_a_probe_may_have_less_time_than_its_pool_and_the_next_has_it_all_again() -> None:
    with Pool() as pool:
        with pytest.raises(WorkerError) as caught:
            pool.examine([replace(request(), time_limit=0.05)])
        assert "0.05 s" in caught.value.why
        assert len(pool.examine([request()])) == 1


def test_a_worker_that_is_killed_is_an_error_with_its_reason_and_the_pool_can_be_used_again() -> None:
    before = workers()

    def kill() -> None:
        for worker in eventually("the work of a worker", lambda: at_work(before)):
            worker.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with Pool() as pool:
        with pytest.raises(WorkerError) as caught:
            pool.examine([request()])
        killer.join()
        assert len(pool.examine([request()])) == 1
    assert caught.value.exit_code == 6
    assert "SIGKILL" in caught.value.why
    assert "memory" in caught.value.why
    assert others_than(before) == set()


def test_a_worker_that_cannot_start_says_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'worker' in ' '.join(sys.orig_argv): sys.exit('no room for torch')\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Pool() as pool, pytest.raises(WorkerError) as caught:
        pool.examine([request()])
    assert "exit code" in caught.value.why
    assert "no room for torch" in caught.value.why


def test_an_error_that_the_user_can_act_on_keeps_its_parts(pool: Pool) -> None:
    with pytest.raises(InputError, match="lion") as caught:
        pool.examine([request(optimizer="lion")])
    assert caught.value.exit_code == 5
    assert "adamw_torch" in caught.value.hint


def test_an_error_that_is_no_input_error_is_a_measure_error(pool: Pool) -> None:
    with pytest.raises(MeasureError) as caught:
        pool.examine([request({**TINY, "model_type": "ibert", "quant_mode": True})])
    assert caught.value.exit_code == 6
    assert "the model's code" in caught.value.what
    assert "quant_modules.py" in caught.value.what


@pytest.mark.parametrize("kind", [InputError, MeasureError])
def test_an_error_stays_its_kind_on_the_way(kind: type[MemdoctorError]) -> None:
    error = error_of({"error": kind.__name__, "what": "it happened", "why": "because", "hint": "do this"})
    assert type(error) is kind
    assert (error.what, error.why, error.hint) == ("it happened", "because", "do this")


def test_a_bug_in_a_worker_carries_the_workers_traceback(pool: Pool) -> None:
    with pytest.raises(Bug) as caught:
        pool.examine([replace(request(), steps="two")])  # type: ignore[arg-type]  # what no caller of ours would do
    assert "Traceback (most recent call last)" in str(caught.value)
    assert "simulate" in str(caught.value)


def test_one_failure_fails_its_call_and_leaves_nothing_to_the_next(pool: Pool) -> None:
    bad, good = request(optimizer="lion"), [request(batch_size=batch) for batch in (1, 2, 3, 4)]
    with pytest.raises(InputError, match="lion"):
        pool.examine([bad, *good, bad])
    found = pool.examine(list(reversed(good)))
    assert [examination.workload.batch_size for examination in found] == [4, 3, 2, 1]


@pytest.mark.parametrize("names", [("types.py", "torch.py", "memdoctor.py", "json.py")])
def test_files_of_the_user_do_not_shadow_what_a_worker_imports(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).write_text("raise SystemExit('the wrong file was imported')\n", encoding="utf-8")
    code = FROM_ELSEWHERE.format(config=TINY, device=repr(CARD))
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "Completed()"), done.stderr


def test_workers_end_when_their_caller_is_killed(tmp_path: Path) -> None:
    code = FROM_ELSEWHERE.format(config=TINY, device=repr(CARD))
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    try:
        started = eventually("the start of a worker", lambda: workers(caller.pid))
    finally:
        caller.kill()
        caller.wait(PATIENCE)
    _, alive = psutil.wait_procs(started, timeout=PATIENCE)
    assert alive == []


@pytest.mark.parametrize(
    ("library", "error", "why"),
    [
        (
            "transformers", "ImportError('huggingface-hub>=1.3.0 is required,\\nbut found huggingface-hub==0.30.0')",
            "ImportError: huggingface-hub>=1.3.0 is required, but found huggingface-hub==0.30.0",
        ),
        ("torch", "OSError('libcudart.so.13: cannot open')", "OSError: libcudart.so.13: cannot open"),
        ("torch", "ValueError('libcublas.so not found')", "ValueError: libcublas.so not found"),
    ],
)  # fmt: skip
def test_a_library_that_cannot_be_imported_is_an_error_of_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, error: str, why: str
) -> None:
    (tmp_path / f"{library}.py").write_text(f"raise {error}\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with Pool() as pool:
        for _ in range(2):  # the second time too
            with pytest.raises(MeasureError) as caught:
                pool.examine([request()])
            assert (caught.value.what, caught.value.why) == (f"{library} cannot be imported", why)
            assert "pip check" in caught.value.hint
            assert "memdoctor env" in caught.value.hint


IN_A_CYCLE = """
import weakref
import torch
from torch import nn

BEFORE = []

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.me = nn.Linear(4, 2), [self]

    def forward(self, values):
        return self.head(values).sum()

def make():
    alive = [model for before in BEFORE if (model := before()) is not None]
    if alive:
        raise RuntimeError(f"{len(alive)} models of earlier probes are still there")
    net = Net()
    BEFORE.append(weakref.ref(net))
    return net, {"values": torch.zeros(1, 4)}
"""


def test_a_model_that_holds_itself_is_gone_before_the_next_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cyclic.py").write_text(IN_A_CYCLE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    asked = Request(Workload(model="cyclic:make", batch_size=1), CARD, resolve_model("cyclic:make"))
    with Pool() as pool:
        for _ in range(3):
            assert len(pool.examine([asked])) == 1
