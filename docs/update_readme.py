"""Writes the README's sample outputs anew: ``python docs/update_readme.py``. A test holds the README to them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
COMMANDS = {
    "sample-output": ("diagnose", "--model", "bert-base-uncased"),
    "sample-advice": ("diagnose", "-m", "bert-base-uncased", "-b", "64", "--gpu", "T4"),
}
"""What is run for each block of the README; the first is the main job."""

WIDTH = "110"


def sample(name: str) -> str:
    """What the command of a block prints: the command as typed, then its standard output."""
    environment = {**os.environ, "COLUMNS": WIDTH, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "memdoctor", *COMMANDS[name]]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=True)
    lines = [f"$ memdoctor {' '.join(COMMANDS[name])}", *(line.rstrip() for line in done.stdout.splitlines())]
    return "\n".join(lines) + "\n"


def in_readme(name: str) -> str:
    """The sample as the README has it."""
    found = _block(name).search(README.read_text(encoding="utf-8"))
    assert found is not None, f"the README has lost its {name} block"
    return found.group(2)


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n```text\n)(.*?)(```\n)", re.DOTALL)


def _written(readme: str, name: str) -> str:
    text = sample(name)
    return _block(name).sub(lambda found: found[1] + text + found[3], readme)


if __name__ == "__main__":
    readme = README.read_text(encoding="utf-8")
    for each in COMMANDS:
        readme = _written(readme, each)
    README.write_text(readme, encoding="utf-8")
