"""Writes the README's sample output anew: ``python docs/update_readme.py``. A test holds the README to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
COMMAND = ("diagnose", "--model", "bert-base-uncased")
BLOCK = re.compile(r"(<!-- sample-output -->\n```text\n)(.*?)(```\n)", re.DOTALL)
WIDTH = "110"


def sample() -> str:
    """What the main job prints: the command as typed, then its standard output."""
    environment = {**os.environ, "COLUMNS": WIDTH, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "memdoctor", *COMMAND]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
    lines = [f"$ memdoctor {' '.join(COMMAND)}", *(line.rstrip() for line in done.stdout.splitlines())]
    return "\n".join(lines) + "\n"


def in_readme() -> str:
    """The sample as the README has it."""
    found = BLOCK.search(README.read_text(encoding="utf-8"))
    assert found is not None, "the README has lost its sample-output block"
    return found.group(2)


if __name__ == "__main__":
    text = sample()
    old = README.read_text(encoding="utf-8")
    README.write_text(BLOCK.sub(lambda found: found[1] + text + found[3], old), encoding="utf-8")
