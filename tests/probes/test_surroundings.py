"""The digest of what a probe stands on: another one for every change that may matter, none where one may hide."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import memdoctor
from memdoctor.probes import surroundings as module
from memdoctor.probes.optimizers.names import OPTIMIZERS
from memdoctor.probes.surroundings import LIBRARIES, code_digest, surroundings, variables


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of packages that comes before all others; none of those that it may have is imported."""
    for name in ("grokadamw", "schedulefree", "peft"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def install(site: Path, name: str, *, version: str = "1.0", record: str | None = "a file and its hash") -> None:
    """A package with its metadata, as pip leaves it."""
    (site / name).mkdir(exist_ok=True)
    (site / name / "__init__.py").write_text("raise SystemExit('this is not to be imported')\n", encoding="utf-8")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    if record is not None:
        (info / "RECORD").write_text(record, encoding="utf-8")


def test_nothing_has_changed_where_nothing_has() -> None:
    found = surroundings({"HOME": "/me", "LANG": "C"})
    assert found is not None
    assert found == surroundings({"HOME": "/you"})


@pytest.mark.parametrize(
    "name",
    [
        "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_ALLOW_TF32",
        "TRANSFORMERS_SDPA_FORCE_GQA", "ACCELERATE_MIXED_PRECISION", "USE_HUB_KERNELS", "WORLD_SIZE", "PYTHONPATH",
    ],
)  # fmt: skip
def test_a_variable_that_a_library_may_read_counts_with_its_value(name: str) -> None:
    assert len({surroundings({}), surroundings({name: "0"}), surroundings({name: "1"})}) == 3


def test_nobodys_secrets_and_terminals_count() -> None:
    assert variables({"HF_TOKEN": "hf_secret", "TERM": "xterm", "MEMDOCTOR_CACHE": "/tmp", "CUDA_HOME": "/cuda"}) == {
        "CUDA_HOME": "/cuda"
    }


def test_a_changed_source_of_memdoctor_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = surroundings({})
    (tmp_path / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(memdoctor, "__file__", str(tmp_path / "__init__.py"))
    assert surroundings({}) not in (before, None)


def test_code_is_known_by_its_contents_whatever_size_and_time_say(tmp_path: Path) -> None:
    source = tmp_path / "probe.py"
    digests = []
    for text in ("SIZE = 512\n", "SIZE = 513\n", "SIZE = 512\n"):
        source.write_text(text, encoding="utf-8")
        os.utime(source, (0, 0))
        digests.append(code_digest(tmp_path))
    assert digests[0] == digests[2] != digests[1]


def test_code_is_known_by_its_names_and_in_linked_folders_too(tmp_path: Path) -> None:
    package, elsewhere = tmp_path / "package", tmp_path / "elsewhere"
    for folder in (package, elsewhere):
        folder.mkdir()
    digests = [code_digest(package)]
    (package / "probes").symlink_to(elsewhere)
    for name in ("a.py", "b.py"):
        (elsewhere / name).touch()
        digests.append(code_digest(package))
    (elsewhere / "a.py").rename(elsewhere / "c.py")
    digests.append(code_digest(package))
    assert len(set(digests)) == 4
    (elsewhere / "notes.txt").touch()
    assert code_digest(package) == digests[-1]


def test_a_release_of_a_library_counts_and_so_does_another_build_of_it(site: Path) -> None:
    found = [surroundings({})]
    install(site, "grokadamw")
    found.append(surroundings({}))
    (site / "grokadamw-1.0.dist-info" / "RECORD").write_text("a file and another hash", encoding="utf-8")
    found.append(surroundings({}))
    (site / "grokadamw-1.0.dist-info").rename(site / "grokadamw-1.1.dist-info")
    found.append(surroundings({}))
    assert None not in found
    assert len(set(found)) == 4


def test_any_package_counts_that_is_installed(site: Path) -> None:
    found = [surroundings({})]
    for version in ("1.0", "1.1"):
        install(site, "apex", version=version)  # which transformers takes for T5 where it is there
        found.append(surroundings({}))
    assert len(set(found)) == 3


def test_a_library_that_may_change_unnoticed_leaves_nothing_to_know_them_by(site: Path) -> None:
    install(site, "schedulefree", record=None)  # an editable install with its metadata beside it
    assert surroundings({}) is None


def test_a_library_that_was_put_in_the_place_of_the_installed_one_too(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "grokadamw")
    assert surroundings({}) is not None
    (site / "checkout").mkdir()
    (site / "grokadamw").rename(site / "checkout" / "grokadamw")
    monkeypatch.syspath_prepend(str(site / "checkout"))
    assert surroundings({}) is None


def test_a_module_that_nobody_installed_too(site: Path) -> None:
    (site / "peft.py").touch()
    assert surroundings({}) is None


def test_a_driver_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(module, "_DRIVER", tmp_path / "version")
    for text in ("", "580.65.06", "590.1"):
        (tmp_path / "version").write_text(text, encoding="utf-8")
        found.append(surroundings({}))
    assert len(set(found)) == 3


def test_every_library_of_an_optimizer_is_looked_at() -> None:
    known = {library.module.partition(".")[0]: library.distribution for library in OPTIMIZERS.values()}
    assert known.items() <= LIBRARIES.items()
