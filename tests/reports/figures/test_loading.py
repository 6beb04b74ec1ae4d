"""matplotlib is imported without a word, whatever the user's settings, and its settings stay the user's."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memdoctor.reports.figures.drawing import style

DRAW = """
import memdoctor.reports.figures
from matplotlib import get_backend
from matplotlib.figure import Figure
from memdoctor.reports.figures.drawing import file_of, style
with style():
    figure = Figure(figsize=(1, 1))
    figure.text(0, 0, "words")
    file_of(figure, "png")
print(get_backend())
"""


def ran(**settings: str) -> subprocess.CompletedProcess[str]:
    """A process that draws under these environment variables, ours imported before matplotlib."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MPL", "MATPLOTLIB"))}
    command = [sys.executable, "-c", DRAW]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**kept, **settings})


def test_a_cache_that_cannot_be_written_is_not_spoken_of() -> None:
    # below a file there is no folder, not even for root
    drawn = ran(MPLCONFIGDIR=f"{os.devnull}/none", HOME=os.devnull)
    assert (drawn.returncode, drawn.stderr) == (0, "")


def test_a_backend_that_there_is_not_is_passed_over_and_one_that_there_is_stays() -> None:
    unknown, known = ran(MPLBACKEND="nonsense"), ran(MPLBACKEND="svg")
    assert (unknown.returncode, unknown.stderr) == (0, "")
    assert (known.returncode, known.stdout, known.stderr) == (0, "svg\n", "")


def test_keys_of_a_matplotlibrc_that_are_unknown_are_not_spoken_of(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("nonsense.key: 3\nfont.family: Nowhere\n")
    drawn = ran(MPLCONFIGDIR=str(tmp_path))
    assert (drawn.returncode, drawn.stderr) == (0, "")


@pytest.mark.parametrize("level", [logging.NOTSET, logging.DEBUG])
def test_the_users_log_is_as_it_was_after_drawing(level: int) -> None:
    log = logging.getLogger("matplotlib")
    before = log.level
    log.setLevel(level)
    try:
        with style():
            assert log.level == logging.CRITICAL
        assert log.level == level
    finally:
        log.setLevel(before)
