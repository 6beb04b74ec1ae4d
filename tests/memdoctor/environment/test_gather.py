"""What is there is gathered from the machine itself, and no library's absence is an error."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from memdoctor.environment import gather
from memdoctor.environment.gather import cards_on_bus
from memdoctor.probes.context import Context
from memdoctor.probes.nvml import Absence, NoGpu
from memdoctor.probes.remembered import Setting, remember
from memdoctor.probes.torch_build import TorchBuild


def test_the_machine_is_gathered(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(0), nvml.card(1))
    found = gather({"CUDA_VISIBLE_DEVICES": "1"})
    assert found.visible is not None
    assert [gpu.index for gpu in found.visible.gpus] == [1]
    assert found.variables["CUDA_VISIBLE_DEVICES"] == "1"
    assert found.variables["PYTORCH_ALLOC_CONF"] is None
    assert found.packages["pydantic"] == metadata.version("pydantic")
    assert found.host_memory_bytes > 0


def test_without_nvml_the_rest_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = gather({})
    assert isinstance(found.gpus, NoGpu)
    assert found.gpus.absence is Absence.NO_PYNVML
    assert (found.visible, found.contexts) == (None, {})


def test_contexts_of_cards_and_instances_are_gathered(
    nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("memdoctor.probes.remembered.torch_build", lambda: TorchBuild("2.13.0", "13.0", None))
    pretend_gpus(nvml.card(0), nvml.cut_card(nvml.instance(), number=1))
    environ, context = {"XDG_CACHE_HOME": str(tmp_path)}, Context(1, 1, "measured")
    remember(Setting(nvml.instance()["name"], "580.65.06", "13.0", "2.13.0"), context, environ)
    assert gather(environ).contexts == {nvml.instance()["uuid"]: context}


def device(devices: Path, name: str, **files: str) -> None:
    """A device on the bus with these files."""
    (devices / name).mkdir()
    for file, text in files.items():
        (devices / name / file).write_text(text, encoding="ascii")


def test_nvidia_gpus_on_the_bus_are_counted(tmp_path: Path) -> None:
    device(tmp_path, "0000:01:00.0", vendor="0x10de\n", **{"class": "0x030200\n"})  # a GPU of a server
    device(tmp_path, "0000:02:00.0", vendor="0x10de\n", **{"class": "0x030000\n"})  # a GPU with a screen
    device(tmp_path, "0000:02:00.1", vendor="0x10de\n", **{"class": "0x040300\n"})  # its sound
    device(tmp_path, "0000:03:00.0", vendor="0x8086\n", **{"class": "0x030000\n"})  # another maker's
    device(tmp_path, "0000:04:00.0", vendor="0x10de\n")  # unreadable
    assert cards_on_bus(tmp_path) == 2
    assert cards_on_bus(tmp_path / "nowhere") == 0
