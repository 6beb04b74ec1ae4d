"""What the source imports from others is what pyproject.toml declares."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCE = ("memdoctor", "probes", "reports")
TESTS = ("tests",)
EXTRAS = ("apollo", "bitsandbytes", "galore", "lomo", "torchao", "peft")  # imported where they are asked for


def imports_of(folders: tuple[str, ...]) -> set[str]:
    """Top-level names that Python files import, at any depth, from outside the standard library and the project."""
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    names = {name.partition(".")[0] for path in files for name in _names(ast.parse(path.read_bytes()))}
    ours = {path.stem for folder in ("builders", "standins/cuda") for path in (ROOT / "tests" / folder).glob("*.py")}
    return names - sys.stdlib_module_names - {"memdoctor", "tests"} - ours


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def canonical(requirement: str) -> str:
    """The distribution's normalized name: ``rich_click>=1.8`` is ``rich-click``."""
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name.group()).lower()


def declared(*extras: str) -> set[str]:
    """Distributions that the project asks for, with these extras."""
    groups = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    return {canonical(requirement) for group in groups for requirement in group}


@pytest.mark.parametrize(
    ("folders", "extras"), [(SOURCE, EXTRAS), (TESTS, ("dev", "trainer"))], ids=["source", "tests"]
)
def test_every_import_is_declared(folders: tuple[str, ...], extras: tuple[str, ...]) -> None:
    providers = packages_distributions()
    undeclared = {
        module
        for module in imports_of(folders)
        if not {canonical(name) for name in providers.get(module, [module])} & declared(*extras)
    }
    assert undeclared == set()
