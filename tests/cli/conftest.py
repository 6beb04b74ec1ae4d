"""The command line as users meet it, a process of its own; and the few long runs, made once and shared."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 120.0  # seconds until a command counts as hanging
COMMAND = (sys.executable, "-m", "memdoctor")
NOT_HERE = "raise ImportError('{} must not be imported here')\n"

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


def _environment(changes: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONWARNINGS": "ignore", **changes}


@pytest.fixture(scope="session")
def run() -> Run:
    """Run ``memdoctor`` with these arguments, its output in pipes."""

    def execute(*arguments: object, cwd: Path | None = None, **environment: str) -> Done:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)], cwd=cwd, env=_environment(environment), capture_output=True,
            encoding="utf-8", errors="backslashreplace", stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False,
        )  # fmt: skip

    return execute


@pytest.fixture(scope="session")
def on_terminal() -> Callable[..., str]:
    """Run ``memdoctor`` on a terminal of so many columns and return what is shown, escape codes and all."""

    def execute(columns: int, *arguments: object, **environment: str) -> str:
        ours, theirs = pty.openpty()
        shown = bytearray()

        def read() -> None:
            try:
                while chunk := os.read(ours, 4096):
                    shown.extend(chunk)
            except OSError:  # Linux's way of saying that the other side is closed
                return

        reader = threading.Thread(target=read)
        reader.start()
        settings = _environment({"COLUMNS": str(columns), "LINES": "50", "TERM": "xterm-256color", **environment})
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)], env=settings, stdin=subprocess.DEVNULL, stdout=theirs,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        os.close(theirs)
        _, errors = process.communicate(timeout=PATIENCE)
        reader.join()
        os.close(ours)
        assert process.returncode == 0, errors.decode()
        return shown.decode().replace("\r\n", "\n")

    return execute


@dataclass(frozen=True, slots=True)
class Saved:
    """A command that wrote JSON to standard output, and the file that it saved."""

    done: Done
    path: Path

    @property
    def document(self) -> dict[str, Any]:
        """The JSON on standard output."""
        parsed: dict[str, Any] = json.loads(self.done.stdout)
        return parsed


@pytest.fixture(scope="session")
def main_job(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """``diagnose --model bert-base-uncased``: everything else assumed."""
    path = tmp_path_factory.mktemp("main") / "bert-base.json.gz"
    return Saved(run("diagnose", "--model", "bert-base-uncased", "--json", "-o", path), path)


@pytest.fixture(scope="session")
def large(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """``probe`` of BERT-large at 32 x 512 on a T4, where it does not fit."""
    path = tmp_path_factory.mktemp("large") / "bert-large.json.gz"
    workload = ("--model", "bert-large-uncased", "--batch-size", 32, "--seq-length", 512, "--gpu", "T4")
    return Saved(run("probe", *workload, "--json", "-o", path), path)


@pytest.fixture
def no_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which the heavy libraries cannot be imported."""
    for name in ("torch", "transformers", "huggingface_hub"):
        (tmp_path / f"{name}.py").write_text(NOT_HERE.format(name), encoding="utf-8")
    return {"PYTHONPATH": str(tmp_path)}
