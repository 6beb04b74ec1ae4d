"""What is built holds the whole package, symlinked folders included, and nothing beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from setuptools import find_packages

import memdoctor

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NOT_SOURCE = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__", "build", "dist", "shared", "tests")


def package_files() -> Iterator[Path]:
    """Every file of the package, relative to the checkout, through the symlinks."""
    for folder, folders, names in os.walk(ROOT / "memdoctor", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(folder, name).relative_to(ROOT) for name in names if not name.endswith(".pyc"))


def packages_on_disk() -> set[str]:
    """Dotted names of the folders that hold Python files."""
    return {".".join(path.parent.parts) for path in package_files() if path.suffix == ".py"}


def test_folders_at_the_top_are_linked_into_the_package() -> None:
    for name in ("probes", "reports"):
        assert (ROOT / "memdoctor" / name).readlink() == Path("..", name)


def test_every_folder_with_python_files_is_found_as_a_package() -> None:
    found = find_packages(str(ROOT), include=PROJECT["tool"]["setuptools"]["packages"]["find"]["include"])
    assert set(found) == packages_on_disk()


@dataclass(frozen=True, slots=True)
class Built:
    """What ``python -m build`` made: the sdist from the source, and the wheel from the sdist."""

    sdist: Path
    wheel: Path

    def files(self) -> set[str]:
        """Names in the wheel."""
        with zipfile.ZipFile(self.wheel) as archive:
            return set(archive.namelist())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    if find_spec("build") is None:
        pytest.skip("the package build is not installed")
    source = tmp_path_factory.mktemp("source") / "checkout"
    shutil.copytree(ROOT, source, symlinks=True, ignore=NOT_SOURCE)
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(next(out.glob("*.tar.gz")), next(out.glob("*.whl")))


def test_wheel_holds_the_files_of_the_package_and_no_others(built: Built) -> None:
    packed = {name for name in built.files() if ".dist-info/" not in name}
    assert packed == {path.as_posix() for path in package_files()}


def test_wheel_has_what_is_easily_forgotten(built: Built) -> None:
    expected = {
        "memdoctor/py.typed",
        "memdoctor/catalogue/gpus.toml",
        "memdoctor/catalogue/models.toml",
        "memdoctor/probes/simulated/allocator/caching.py",
        "memdoctor/reports/__init__.py",
        f"memdoctor_gpu-{memdoctor.__version__}.dist-info/licenses/LICENSE",
    }
    assert expected <= built.files()


def test_sdist_has_real_files_instead_of_symlinks(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    assert {path.as_posix() for path in package_files()} <= members.keys()
    assert all(member.isreg() or member.isdir() for member in members.values())
    assert not {"probes", "reports", "tests"} & members.keys()


def test_wheel_is_imported_from_any_folder(built: Built, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(site)
    code = "import memdoctor.catalogue as c, memdoctor.probes.simulated.allocator as a; c.gpus(); print(a.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()).is_relative_to(site)
