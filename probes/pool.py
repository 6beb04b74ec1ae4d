"""Probes in worker processes: the caller's process never imports torch, and a hang or a crash is an answer.

A worker takes one probe after another (importing torch costs more than a probe). It is killed when one takes longer
than the time limit, and when the caller leaves: done, failed or interrupted.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import IO, Any

from memdoctor.codec import examination_from_json, from_json, to_json
from memdoctor.errors import InputError, MeasureError, MemdoctorError, TooSlow, WorkerError
from memdoctor.probes import STEPS
from memdoctor.probes.resolve import ModelFacts
from memdoctor.probes.worker import error_of
from memdoctor.records import Backend, Completed, Device, Examination, Verification, VerificationPlan, Workload

TIME_LIMIT = 300.0  # seconds for one probe, imports included
_LAST_BREATH = 5.0  # seconds between a worker's last word and its end
MOST_WORKERS = 4  # each holds torch: more of them cost memory before they save time


# Some models go through a set of strings (ModernBERT's kinds of layers), whose order is another in each process unless
# hashes are fixed. Nothing is computed where the step is simulated, so math libraries need no threads there; and
# TorchScript, in models of older releases of transformers, makes real tensors beside the fake ones: as plain Python
# the same functions run.
_REAL = {"PYTHONHASHSEED": "0"}
ENVIRONMENTS = {
    Backend.SIMULATED: {**_REAL, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTORCH_JIT": "0"},
    Backend.GPU: _REAL,
    Backend.CPU: {"OMP_WAIT_POLICY": "PASSIVE", **_REAL},  # threads that spin waste what others could use
}


@dataclass(frozen=True, slots=True)
class Request:
    """One probe to run; ``time_limit`` is its own, in seconds, where that is less than the pool's."""

    workload: Workload
    device: Device
    facts: ModelFacts
    steps: int = STEPS
    time_limit: float = inf
    verification: VerificationPlan | None = None  # in place of an examination; on the CPU


class Bug(Exception):
    """A probe failed in a way nobody foresaw; carries the worker's traceback."""


Done = Callable[[Request, Examination | Verification | MemdoctorError], None]
"""Told of each request that is finished, and what came of it."""
_Ticket = tuple[int, int]  # which call of examine, and which of its requests
_Job = tuple[_Ticket, Request] | None  # None: no more work
_Outcome = tuple[_Ticket, Examination | Verification | Exception]


class Pool:
    """Worker processes for as long as the context lasts; they start with the first requests and stay for the next.

    Leaving the context ends them, whatever they do: what they held of a GPU is free then. A process that has seen the
    simulated GPU cannot use a real one, so a pool is of one ``backend``. Real steps run one after another: two at
    once would share the card or the cores, and each would tell of both.
    """

    def __init__(self, backend: Backend = Backend.SIMULATED, *, time_limit: float = TIME_LIMIT) -> None:
        self._backend = backend
        self._time_limit = time_limit
        self._calls = 0
        self._workers: list[_Worker] = []
        self._waiting: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._finished: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._end()
        except KeyboardInterrupt:  # a second Ctrl-C does not spare the workers
            self._end()
            raise

    def _end(self) -> None:
        self._forget_waiting()
        for worker in self._workers:
            worker.stop()
        for _ in self._workers:  # any thread may take any of them, so all are there before one is waited for
            self._waiting.put(None)
        for worker in self._workers:
            worker.close()

    def examine(self, requests: Sequence[Request], on_done: Done | None = None) -> list[Examination]:
        """Run every request and return the examinations in the same order.

        ``on_done`` is called in the caller's thread as each is finished.

        Raises:
            MemdoctorError: the first request that fails fails them all; the pool can be used again.
            Bug: a worker met an error that is ours.
        """
        results = self._run(requests, on_done, ())
        return [result for result in results if isinstance(result, Examination)]

    def verify(self, request: Request) -> Verification:
        """As :meth:`examine`, of one request that carries a plan of verification."""
        (result,) = self._run([request], None, ())
        assert isinstance(result, Verification)
        return result

    def attempt(self, requests: Sequence[Request], on_done: Done | None = None) -> list[Examination | MemdoctorError]:
        """As :meth:`examine`, with its error in place of the examination of a request that cannot be probed.

        That a worker died, hung or was killed is such an error where the step is a real one.

        Raises:
            WorkerError: a worker died, hung or was killed while it simulated.
            Bug: a worker met an error that is ours.
        """
        results = self._run(requests, on_done, (InputError, MeasureError))
        return [result for result in results if not isinstance(result, Verification)]

    def _run(
        self, requests: Sequence[Request], on_done: Done | None, spared: tuple[type[MemdoctorError], ...]
    ) -> list[Examination | Verification | MemdoctorError]:
        self._calls += 1
        call = self._calls
        for index, request in enumerate(requests):
            self._waiting.put(((call, index), request))
        count = _worker_count(len(requests)) if self._backend is Backend.SIMULATED else min(1, len(requests))
        while len(self._workers) < count:
            self._workers.append(_Worker(self._backend, self._waiting, self._finished, self._time_limit))
        results: dict[int, Examination | Verification | MemdoctorError] = {}
        while len(results) < len(requests):
            (of_call, index), outcome = self._finished.get()
            if of_call != call:  # left over from a call that failed
                continue
            if isinstance(outcome, Exception) and not self._is_spared(outcome, spared):
                self._forget_waiting()
                raise outcome
            assert not isinstance(outcome, Exception) or isinstance(outcome, MemdoctorError)  # of what is spared
            results[index] = outcome
            if on_done is not None:
                on_done(requests[index], outcome)
        return [results[index] for index in range(len(requests))]

    def _is_spared(self, error: Exception, spared: tuple[type[MemdoctorError], ...]) -> bool:
        died = isinstance(error, WorkerError) and self._backend is Backend.SIMULATED
        return isinstance(error, spared) and not died

    def _forget_waiting(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()


def _worker_count(requests: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, requests, MOST_WORKERS)


class _Worker:
    """One worker process and the thread that feeds it; a process that has died is started again for the next probe."""

    def __init__(
        self,
        backend: Backend,
        waiting: queue.SimpleQueue[_Job],
        finished: queue.SimpleQueue[_Outcome],
        time_limit: float,
    ) -> None:
        self._backend = backend
        self._waiting = waiting
        self._finished = finished
        self._time_limit = time_limit
        self._late = False
        self._stopped = False
        self._starting = threading.Lock()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._process = self._start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the process, whatever it does; no other is started."""
        with self._starting:
            self._stopped = True
            self._kill()

    def close(self) -> None:
        """Wait until the process and the thread are gone."""
        self._process.wait()
        self._kill()  # the copies of one that had ended by itself
        self._thread.join()
        self._close_pipes()
        self._errors.close()

    def _kill(self) -> None:
        """End the process and every copy of it that a model's code has made: they are one session."""
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        # -P: a file torch.py in the user's directory is not torch. Its own session: Ctrl-C reaches the caller alone.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "memdoctor.probes.worker", self._backend.value], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, env={**os.environ, **ENVIRONMENTS[self._backend]},
            start_new_session=True,
        )  # fmt: skip

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None:
            ticket, request = job
            try:
                with self._starting:
                    if self._stopped:
                        return
                    if self._process.poll() is not None:
                        self._close_pipes()
                        self._errors.seek(0)
                        self._errors.truncate()  # what the last one said is no longer of interest
                        self._process = self._start()
                self._finished.put((ticket, self._probe(request)))
            except Exception as error:  # noqa: BLE001 - carried to the caller's thread and raised there
                self._finished.put((ticket, error))

    def _probe(self, request: Request) -> Examination | Verification:
        self._late = False
        limit = min(self._time_limit, request.time_limit)
        timer = threading.Timer(min(limit, threading.TIMEOUT_MAX), self._expire)
        timer.start()
        try:
            line = self._exchange(_encode(request))
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            raise self._death(request, limit)
        answer = json.loads(line)
        examination = examination_from_json(answer["examination"]) if "examination" in answer else None
        if self._backend is Backend.GPU and (examination is None or not isinstance(examination.outcome, Completed)):
            self._restart_later()
        if examination is not None:
            return examination
        if "verification" in answer:
            return from_json(Verification, answer["verification"])
        raise Bug(answer["bug"]) if "bug" in answer else error_of(answer)

    def _restart_later(self) -> None:
        """After an error of CUDA's, or out of memory: the GPU is free for certain when the process is gone."""
        self._kill()
        self._process.wait()

    def _exchange(self, question: bytes) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(question)
            self._process.stdin.flush()
        except BrokenPipeError:
            return b""
        return self._process.stdout.readline()

    def _expire(self) -> None:
        self._late = True
        self._kill()

    def _death(self, request: Request, limit: float) -> WorkerError:
        try:
            code = self._process.wait(timeout=_LAST_BREATH)
        except subprocess.TimeoutExpired:  # it closed its output, and a thread of the model's keeps it alive
            self._kill()
            code = self._process.wait()
        workload = request.workload
        shape = f"batch {workload.batch_size}, length {workload.seq_length}"
        what = f"the probe of {workload.model} at {shape} did not finish"
        if self._late:
            less = ", or less to evaluate" if workload.evaluate else ""
            return TooSlow(what, why=f"it took longer than {limit:g} s", hint=f"a larger --time-limit{less}")
        if code == -signal.SIGKILL:
            why = "its worker process was killed (SIGKILL); the system does that when the machine runs out of memory"
            return WorkerError(what, why=why, hint="free some host memory, then run it again")
        return WorkerError(what, why=f"its worker process ended with {_ending(code)}{self._last_words()}")

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def message_of(request: Request) -> dict[str, Any]:
    """All that a worker is told of a request, as JSON values."""
    return {
        "workload": to_json(request.workload), "device": to_json(request.device), "config": dict(request.facts.config),
        "model_source": request.facts.source, "steps": request.steps,
        "verification": to_json(request.verification) if request.verification else None,
    }  # fmt: skip


def _encode(request: Request) -> bytes:
    return json.dumps(message_of(request)).encode() + b"\n"
