"""The README keeps its word: its sample is what the main job prints, and its commands are there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from memdoctor.cli.main import COMMANDS, memdoctor
from memdoctor.probes.nvml import NoGpu, see_gpus

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def update_readme() -> ModuleType:
    spec = importlib.util.spec_from_file_location("update_readme", ROOT / "docs" / "update_readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["sample-output", "sample-advice"])
def test_each_sample_is_what_its_command_prints(update_readme: ModuleType, name: str) -> None:
    if not isinstance(see_gpus(), NoGpu):
        pytest.skip("the samples are of a machine without a GPU")
    assert update_readme.in_readme(name) == update_readme.sample(name)


def test_every_sample_is_tested(update_readme: ModuleType) -> None:
    assert set(update_readme.COMMANDS) == {"sample-output", "sample-advice"}


@pytest.mark.parametrize("marker", ["main-job-command", "test-command"])
def test_each_of_the_two_commands_is_one_line_to_paste(marker: str) -> None:
    block = re.search(rf"<!-- {marker} -->\n```bash\n(.*?)```", README, re.DOTALL)
    assert block is not None
    assert block.group(1).count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_readme(command: str) -> None:
    assert f"memdoctor {command}" in README


def test_the_readme_names_only_commands_and_options_that_are_there() -> None:
    lines = re.findall(r"^memdoctor .*$", README, re.MULTILINE)
    assert len(lines) > 4
    for line in lines:
        for part in line.partition("  #")[0].split(";"):
            _, command, *words = part.split()
            options = {name for option in _options(command) for name in option.opts}
            assert {word for word in words if word.startswith("-")} <= options


def _options(command: str) -> list[object]:
    found = memdoctor.get_command(None, command)  # type: ignore[arg-type]
    assert found is not None
    return list(found.params)
