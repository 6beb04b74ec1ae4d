"""A run that is stopped from outside: its exit code, a word, no worker left behind and no half-written file."""

from __future__ import annotations

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

PATIENCE = 60.0  # seconds until what must happen counts as not happening
# A shell starts its background jobs with SIGINT ignored; a user at a terminal has it not.
LISTENING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from memdoctor.cli import main
main()
"""


@dataclass(slots=True)
class Running:
    """A diagnosis under way, and the workers that it has started."""

    process: subprocess.Popen[str]
    workers: set[psutil.Process]

    def end(self) -> tuple[int, str, str]:
        """Wait for the end: exit code, standard output and standard error. By then no worker may be left."""
        output, errors = self.process.communicate(timeout=PATIENCE)
        assert not left(self.workers, 5)
        return self.process.returncode, output, errors


def workers_of(pid: int) -> set[psutil.Process]:
    """Workers that have run for a while: each has a probe, and imports torch for it."""
    found = set()
    for child in psutil.Process(pid).children(recursive=True):
        try:
            if "memdoctor.probes.worker" in child.cmdline() and sum(child.cpu_times()[:2]) > 0.3:
                found.add(child)
        except psutil.NoSuchProcess:
            continue
    return found


def left(workers: set[psutil.Process], patience: float) -> list[psutil.Process]:
    """Those of the workers that still run after a while; one that only waits to be counted as dead does not."""
    end = time.monotonic() + patience
    while (running := [worker for worker in workers if runs(worker)]) and time.monotonic() < end:
        time.sleep(0.01)
    return running


def runs(process: psutil.Process) -> bool:
    """Whether it is there and more than an entry in the system's table."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start a diagnosis that writes a file, and wait until its workers work."""
    started: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> Running:
        arguments = ("diagnose", "--model", "bert-base-uncased", "-o", "a.json", *options)
        process = subprocess.Popen(
            [sys.executable, "-c", LISTENING, *arguments], cwd=tmp_path, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        started.append(process)
        end = time.monotonic() + PATIENCE
        while not (found := workers_of(process.pid)):
            assert time.monotonic() < end, "no worker was started"
            assert process.poll() is None, process.stderr
            time.sleep(0.01)
        return Running(process, found | set(psutil.Process(process.pid).children(recursive=True)))

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_ctrl_c_is_told_in_a_word(start: Callable[..., Running], tmp_path: Path, options: tuple[str, ...]) -> None:
    running = start(*options)
    running.process.send_signal(signal.SIGINT)
    code, output, errors = running.end()
    assert (code, output) == (130, "")
    assert errors.strip() == "Interrupted."
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_twice_is_no_worse(start: Callable[..., Running], tmp_path: Path) -> None:
    running = start()
    running.process.send_signal(signal.SIGINT)
    running.process.send_signal(signal.SIGINT)
    code, output, errors = running.end()
    assert (code, output) == (130, "")
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_a_request_to_end_is_obeyed(start: Callable[..., Running], tmp_path: Path) -> None:
    running = start()
    running.process.terminate()
    code, output, errors = running.end()
    assert (code, output) == (128 + signal.SIGTERM, "")
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_is_killed_is_an_error_with_its_reason(start: Callable[..., Running], tmp_path: Path) -> None:
    running = start()
    for worker in workers_of(running.process.pid):
        os.kill(worker.pid, signal.SIGKILL)
    code, output, errors = running.end()
    assert (code, output) == (6, "")
    assert "SIGKILL" in errors
    assert "bert-base-uncased" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []
