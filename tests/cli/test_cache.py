"""The cache of simulated probes on the command line: the second time nothing is started, and the answer is the same."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

CONFIG = {
    "model_type": "bert", "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 64,
}  # fmt: skip
# Python runs this when it starts. Nothing of what it refuses is needed where all is in the cache.
SENTRY = """
import os, sys
def refuse(event, arguments):
    if event == "subprocess.Popen" or (event == "import" and arguments[0] in ("torch", "transformers")):
        raise RuntimeError(f"{event} {arguments[0]} when all was in the cache")
if "TEST_SENTRY" in os.environ:
    sys.addaudithook(refuse)
"""
FACTORY = """
from torch import nn, randn
def build():
    return nn.Sequential(nn.Linear(4, 4)), (randn(2, 4),)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with a small model, where the sentry is at hand."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(SENTRY, encoding="utf-8")
    return tmp_path


@pytest.fixture
def ask(here: Path, run: Any) -> Any:
    """Run a command on the small model, with a cache and, where it is asked for, under the sentry's eyes."""
    path = os.pathsep.join(filter(None, (str(here), os.environ.get("PYTHONPATH"))))

    def execute(*words: object, sentry: bool = False, **environ: str) -> Any:
        command, *rest = words
        watched = {"TEST_SENTRY": "1"} if sentry else {}
        settings = {"PYTHONPATH": path, "MEMDOCTOR_CACHE": str(here / "cache"), **watched, **environ}
        return run(command, "-m", here / "config.json", "-s", 16, "-b", 3, "--gpu", "T4", *rest, **settings)

    return execute


def counts(done: Any) -> tuple[int, int]:
    """How many probes were run, and how many taken from the cache."""
    found = re.search(r"ran (\d+) probes?(?:, took (\d+) from the cache,)? in \d+ s", done.stderr)
    assert found is not None, done.stderr
    return int(found[1]), int(found[2] or 0)


def test_the_second_diagnosis_is_the_first_and_starts_nothing(ask: Any, here: Path, run: Any) -> None:
    first = ask("diagnose", "--json")
    ran, cached = counts(first)
    assert (first.returncode, ran > 5, cached) == (0, True, 0)
    second = ask("diagnose", "--json", sentry=True)
    assert (second.returncode, second.stdout) == (0, first.stdout), second.stderr
    assert counts(second) == (0, ran)
    assert counts(ask("probe", "--toggle", "batch_size=5")) == (1, 1)  # the target is known, the change is not
    told = json.loads(run("env", "--json", MEMDOCTOR_CACHE=str(here / "cache")).stdout)
    assert told["environment"]["probe cache"].startswith(f"{here / 'cache' / 'probes'}, {ran + 1} probes, ")
    assert told["probe_cache"]["probes"] == ran + 1


def test_the_sentry_sees_what_is_started(ask: Any) -> None:
    done = ask("probe", sentry=True)
    assert done.returncode == 1
    assert "subprocess.Popen" in done.stderr


def test_who_asks_for_it_gets_a_probe(ask: Any) -> None:
    assert counts(ask("probe")) == (1, 0)
    assert counts(ask("probe", "--no-cache")) == (1, 0)
    assert counts(ask("probe", MEMDOCTOR_CACHE="off")) == (1, 0)
    repeated = ask("probe", "--repeat", 2)  # whether the bytes are the same is the question
    assert counts(repeated) == (2, 0)
    assert counts(ask("probe", sentry=True)) == (0, 1)


def test_a_refusal_is_told_again(ask: Any) -> None:
    first = ask("probe", "--freeze", "nothing")
    second = ask("probe", "--freeze", "nothing", sentry=True)
    assert (first.returncode, "matches no parameter" in first.stderr) == (5, True)
    assert (second.returncode, second.stderr) == (5, first.stderr)


def test_a_users_own_code_is_run_each_time(here: Path, run: Any) -> None:
    (here / "mine.py").write_text(FACTORY, encoding="utf-8")
    for _ in range(2):
        done = run("probe", "-m", "mine:build", "--gpu", "T4", cwd=here, MEMDOCTOR_CACHE=str(here / "cache"))
        assert done.returncode == 0, done.stderr
        assert counts(done) == (1, 0)
    assert not (here / "cache").exists()
