"""Reports of saved files: what a terminal, a pipe and a file get, without torch, and what a bug looks like."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ESCAPE = "\x1b"
COLOUR = re.compile(r"\x1b\[[\d;]*?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[\d;]*m")
MOST_LINES = 25
PARTS = (
    "parameters", "gradients", "optimizer state", "activations", "inputs and buffers", "autocast copies", "temporaries",
    "workspace", "allocator overhead", "context", "other processes", "free",
)  # fmt: skip


@pytest.fixture(params=["main_job", "large"])
def saved(request: pytest.FixtureRequest) -> Any:
    """One that fits and one that does not; a diagnosis and an examination."""
    return request.getfixturevalue(request.param)


def plain(shown: str) -> str:
    """What is on the terminal once its codes are obeyed."""
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)


def lines_of(shown: str) -> list[str]:
    """The lines of a view."""
    return plain(shown).rstrip("\n").split("\n")


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_a_view_has_at_most_25_lines_and_keeps_to_the_width(saved: Any, on_terminal: Any, columns: int) -> None:
    lines = lines_of(on_terminal(columns, "report", saved.path))
    assert max(map(len, lines)) <= columns
    assert len(lines) <= MOST_LINES


def test_the_verdict_is_in_the_first_two_lines(run: Any, main_job: Any, large: Any) -> None:
    assert "Fits, " in "".join(run("report", main_job.path).stdout.splitlines()[:2])
    assert "Does not fit, " in "".join(run("report", large.path).stdout.splitlines()[:2])


def test_a_view_says_simulated_and_names_what_was_assumed(run: Any, main_job: Any) -> None:
    text = " ".join(run("report", main_job.path).stdout.split())
    assert "simulated" in text
    for words in main_job.document["assumed"]:
        assert words in text


def test_every_part_of_the_card_is_shown(run: Any, saved: Any) -> None:
    text = run("report", saved.path).stdout
    assert [part for part in PARTS if part not in text] == []


def test_where_it_ran_out_is_shown(run: Any, large: Any) -> None:
    text = " ".join(run("report", large.path).stdout.split())
    assert re.search(r"tried to allocate [\d.]+ MiB with [\d.]+ MiB free", text)


def test_top_lists_so_many_tensors(run: Any, main_job: Any) -> None:
    without, with_top = (run("report", main_job.path, *top, COLUMNS="250").stdout for top in ((), ("--top", 3)))
    assert with_top.startswith(without)
    added = with_top.removeprefix(without)
    assert len(re.findall(r"^ *[\d.]+ [KMG]iB +\d+ x [\dx]+ ", added, re.MULTILINE)) == 3


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "xterm-256color"}])
def test_a_pipe_gets_no_escape_codes(run: Any, saved: Any, environment: dict[str, str]) -> None:
    done = run("report", saved.path, "--top", 5, **environment)
    assert done.returncode == 0
    assert ESCAPE not in done.stdout + done.stderr


def test_a_terminal_gets_colours_unless_they_are_not_wanted(on_terminal: Any, main_job: Any) -> None:
    assert COLOUR.search(on_terminal(100, "report", main_job.path))
    shown = on_terminal(100, "report", main_job.path, NO_COLOR="1")
    assert not COLOUR.search(shown)
    assert plain(shown) == plain(on_terminal(100, "report", main_job.path))


def test_a_dumb_terminal_gets_no_escape_codes(on_terminal: Any, main_job: Any) -> None:
    assert ESCAPE not in on_terminal(100, "report", main_job.path, TERM="dumb")


@pytest.mark.parametrize("columns", [40, 60])
def test_a_narrow_terminal_loses_no_figure(on_terminal: Any, saved: Any, columns: int) -> None:
    lines = lines_of(on_terminal(columns, "report", saved.path, "--top", 3))
    assert max(map(len, lines)) <= columns
    shown = " ".join(" ".join(lines).split())
    assert re.match(r"Fits, [\d.]+ GiB to spare|Does not fit, [\d.]+ GiB too much", shown)
    assert [part for part in PARTS if part not in shown] == []


@pytest.mark.parametrize("columns", [1, 5, 10])
def test_no_terminal_is_too_narrow_to_try(on_terminal: Any, main_job: Any, columns: int) -> None:
    assert on_terminal(columns, "report", main_job.path)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
def test_any_encoding_will_do(run: Any, on_terminal: Any, saved: Any, encoding: str) -> None:
    done = run("report", saved.path, "--top", 3, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "?" not in done.stdout.replace("what if", "")
    if encoding == "ascii":
        assert done.stdout.isascii()
        assert on_terminal(50, "report", saved.path, PYTHONIOENCODING=encoding).isascii()


def test_the_same_file_gives_the_same_view(run: Any, main_job: Any) -> None:
    assert run("report", main_job.path).stdout == run("report", main_job.path).stdout


def test_neither_view_nor_json_needs_torch(run: Any, saved: Any, no_torch: dict[str, str]) -> None:
    view, document = (run("report", saved.path, *more, **no_torch) for more in ((), ("--json",)))
    assert (view.returncode, document.returncode) == (0, 0), view.stderr + document.stderr
    assert view.stdout == run("report", saved.path).stdout
    assert json.loads(document.stdout)["kind"] == "diagnosis"


def test_without_torch_means_without_torch(no_torch: dict[str, str]) -> None:
    command, environment = [sys.executable, "-c", "import torch"], {**os.environ, **no_torch}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "torch must not be imported here" in done.stderr


def test_a_report_writes_what_it_would_print(run: Any, large: Any, tmp_path: Path) -> None:
    path = tmp_path / "diagnosis.json"
    done = run("report", large.path, "-o", path)
    assert (done.returncode, done.stdout) == (0, "")
    assert str(path) in done.stderr
    assert json.loads(path.read_text(encoding="utf-8")) == json.loads(run("report", large.path, "--json").stdout)
    assert run("report", path).stdout == run("report", large.path).stdout


def test_a_report_overwrites_when_forced(run: Any, large: Any, tmp_path: Path) -> None:
    path = tmp_path / "diagnosis.json"
    path.write_text("mine", encoding="utf-8")
    assert run("report", large.path, "-o", path, "-f").returncode == 0
    assert json.loads(path.read_text(encoding="utf-8"))["kind"] == "diagnosis"


def test_two_outputs_of_one_name_are_written_once(run: Any, large: Any, tmp_path: Path) -> None:
    done = run("report", large.path, "-o", "a.json", "-o", "./a.json", cwd=tmp_path)
    assert done.returncode in (0, 2), done.stderr
    assert (tmp_path / "a.json").exists() == (done.returncode == 0)


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--top", 1000)], ids=str)
def test_a_reader_that_has_seen_enough_is_no_error(main_job: Any, arguments: tuple[object, ...]) -> None:
    command = [sys.executable, "-m", "memdoctor", "report", main_job.path, *arguments]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert errors == b""
    assert process.returncode == 0


@pytest.fixture
def with_a_bug(tmp_path: Path) -> dict[str, str]:
    """An environment in which the analysis fails as nobody foresaw."""
    (tmp_path / "sitecustomize.py").write_text(
        "import memdoctor.analysis\n"
        "def peak_of(examination):\n"
        "    raise RuntimeError('first line\\nthe flux capacitor is empty')\n"
        "memdoctor.analysis.peak_of = peak_of\n",
        encoding="utf-8",
    )
    return {"PYTHONPATH": str(tmp_path)}


def test_a_bug_is_told_in_a_line(run: Any, large: Any, with_a_bug: dict[str, str]) -> None:
    done = run("report", large.path, **with_a_bug)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert "RuntimeError: the flux capacitor is empty" in done.stderr.splitlines()[0]
    assert "-v" in done.stderr
    assert len(done.stderr.splitlines()) <= 3


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_a_bug_shows_its_traceback_to_those_who_ask(
    run: Any, large: Any, with_a_bug: dict[str, str], option: str
) -> None:
    done = run("report", large.path, option, **with_a_bug)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback (most recent call last)" in done.stderr
    assert "the flux capacitor is empty" in done.stderr


def test_a_saved_file_comes_from_standard_input_too(main_job: Any) -> None:
    report = [sys.executable, "-m", "memdoctor", "report"]
    with main_job.path.open("rb") as file:
        piped = subprocess.run([*report, "-", "--json"], stdin=file, capture_output=True, check=True)
    named = subprocess.run([*report, str(main_job.path), "--json"], capture_output=True, check=True)
    assert piped.stdout == named.stdout
