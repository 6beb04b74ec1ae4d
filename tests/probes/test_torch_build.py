"""What torch was built for is read from its files, and is what torch itself says."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from memdoctor.probes.seen import Unknown
from memdoctor.probes.torch_build import TorchBuild, torch_build


def test_the_installed_torch_says_the_same() -> None:
    torch = pytest.importorskip("torch")
    assert torch_build() == TorchBuild(torch.__version__, torch.version.cuda, torch.version.hip)


def installed(monkeypatch: pytest.MonkeyPatch, place: Path, version_file: str | None) -> None:
    """Be where torch 2.13.0 is installed with this version.py, or without one."""
    (place / "torch").mkdir()
    if version_file is not None:
        (place / "torch" / "version.py").write_text(version_file, encoding="utf-8")
    distribution = SimpleNamespace(version="2.13.0", locate_file=lambda name: place / name)
    monkeypatch.setattr(metadata, "distribution", lambda name: distribution)


def test_a_build_for_cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "from typing import Optional\n__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip = None\n"
    installed(monkeypatch, tmp_path, text)
    assert torch_build() == TorchBuild("2.13.0+cu130", "13.0", None)


@pytest.mark.parametrize("text", [None, "", "cuda = (", "cuda = 13.0", "\0"])
def test_a_file_that_does_not_say_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None) -> None:
    installed(monkeypatch, tmp_path, text)
    build = torch_build()
    assert build is not None
    assert build.version == "2.13.0"
    assert isinstance(build.cuda, Unknown)


def test_no_torch_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert torch_build() is None
