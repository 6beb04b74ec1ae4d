"""Help is complete, and neither it nor ``import memdoctor`` waits for torch."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from memdoctor.cli.main import COMMANDS, memdoctor
from memdoctor.records import Workload

ROOT = Path(__file__).parents[2]
HEAVY = {"huggingface_hub", "jinja2", "matplotlib", "numpy", "pandas", "pynvml", "torch", "transformers"}
RUN = "import sys; sys.argv[0] = 'memdoctor'; from memdoctor.cli import main; main()"
# Runs sys.argv[1] as a program, then prints which top-level modules that has loaded.
WITH_MODULES = """
import sys
code = sys.argv.pop(1)
try:
    exec(code)
finally:
    print("loaded", *{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""


def loaded_by(code: str, *arguments: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after running the code."""
    command = [sys.executable, "-c", WITH_MODULES, code, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert not loaded_by(RUN, *arguments) & HEAVY


def test_the_package_loads_nothing_heavy() -> None:
    assert not loaded_by("import memdoctor") & (HEAVY | {"click", "pydantic", "rich"})


def test_heavy_modules_would_be_seen() -> None:
    assert "numpy" in loaded_by("import numpy") & HEAVY


def command(name: str) -> click.Command:
    """The command as the group finds it."""
    found = memdoctor.get_command(click.Context(memdoctor), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself_and_its_options(name: str) -> None:
    assert command(name).help
    undocumented = [
        option.name for option in command(name).params if isinstance(option, click.Option) and not option.help
    ]
    assert undocumented == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_is_shown(name: str) -> None:
    shown = CliRunner().invoke(memdoctor, [name, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Usage:" in shown.output


def test_each_command_is_in_the_help_of_the_group() -> None:
    shown = CliRunner().invoke(memdoctor, ["--help"]).output
    assert [name for name in COMMANDS if name not in shown] == []


def test_each_command_file_is_a_command_or_shared_by_them() -> None:
    modules = [import_module(f"memdoctor.cli.{path.stem}") for path in (ROOT / "memdoctor" / "cli").glob("[!_]*.py")]
    with_command = {module.__name__.rpartition(".")[2] for module in modules if hasattr(module, "command")}
    assert with_command == set(COMMANDS)


def test_the_installed_script_calls_the_command_line() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts == {"memdoctor": "memdoctor.cli:main"}


def test_every_setting_of_a_workload_is_typed_by_its_own_name() -> None:
    """A change in a report can be typed back as it stands there."""
    command = memdoctor.get_command(None, "diagnose")  # type: ignore[arg-type]
    assert command is not None
    options = {name for option in command.params for name in option.opts}
    fields = {f"--{name.replace('_', '-')}" for name in Workload.__dataclass_fields__}
    assert fields - options == {"--evaluate"}  # --eval, as transformers' scripts have it
