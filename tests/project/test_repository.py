"""The files around the code: they name no one's machine, agree on the version, and CI runs what README says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import memdoctor

ROOT = Path(__file__).parents[2]
# A home folder, the folders that containers and CI machines work in, a virtual environment in a temporary folder.
MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:home/(?!user/)|root/|work/|mnt/|tmp/\S*venv)\S*")
WRONG_INSTALL = re.compile(r"pip install (?:-\S+ )*memdoctor(?!-gpu)\b")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Every text file of the checkout that git tracks or would track."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return {
        str(path.relative_to(ROOT)): content.decode()
        for path in paths
        if path.is_file() and not path.is_symlink() and b"\0" not in (content := path.read_bytes())
    }


def found(pattern: re.Pattern[str], texts: dict[str, str]) -> list[str]:
    """Where the pattern stands, as ``file: match``."""
    return [f"{name}: {match.group()}" for name, text in texts.items() for match in pattern.finditer(text)]


def test_no_file_names_a_path_of_a_machine(texts: dict[str, str]) -> None:
    assert found(MACHINE_PATH, texts) == []


@pytest.mark.parametrize("folder", ["home/alice", "root", "work", "mnt", "tmp/a/.venv"])
@pytest.mark.parametrize("before", ["", "(", '"', "path = "])
def test_machine_paths_are_recognised(folder: str, before: str) -> None:
    assert MACHINE_PATH.search(f"{before}/{folder}/x")


@pytest.mark.parametrize("path", ["/home/user/x", "https://host/root/x", "../work/x", "/tmp/report.html", "a/root/b"])
def test_made_up_and_relative_paths_are_allowed(path: str) -> None:
    assert not MACHINE_PATH.search(path)


def test_no_file_tells_people_to_install_the_other_memdoctor(texts: dict[str, str]) -> None:
    assert found(WRONG_INSTALL, texts) == []


def test_changelog_has_the_current_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[?{re.escape(memdoctor.__version__)}\b", changelog, re.MULTILINE)


def test_readme_has_one_test_command_of_one_line() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"<!-- test-command -->\s*^```\w*\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert [len(block.splitlines()) for block in blocks] == [1]
    assert "pytest" in blocks[0]


def test_links_between_documents_lead_somewhere(texts: dict[str, str]) -> None:
    links = [
        (name, link)
        for name, text in texts.items()
        if name.endswith(".md")
        for link in re.findall(r"\]\((?!\w+:)([^)#\s]+)", text)
    ]
    assert [(name, link) for name, link in links if not (ROOT / name).parent.joinpath(link).exists()] == []


def test_ci_script_is_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
