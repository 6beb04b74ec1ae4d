"""GPUs through NVML: whatever the library does, the answer is GPUs or a reason, never an exception."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from memdoctor.probes.nvml import NoGpu, SeenGpu, driver_version, see_gpus

GIB = 1 << 30


class NvmlError(Exception):
    """What NVML raises; its siblings of pynvml derive from one such class."""


def failing(*_: object, **__: object) -> NoReturn:
    """A call that NVML answers with an error."""
    raise NvmlError("Unknown Error")


def nvml(cards: int = 1, **changes: Any) -> SimpleNamespace:
    """The library on a machine with this many T4 of 16 GiB, of which the driver keeps one; with other functions."""
    working = {
        "NVMLError": NvmlError,
        "nvmlMemory_v2": 2,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: cards,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda handle, version: SimpleNamespace(
            total=16 * GIB, reserved=GIB, used=handle * GIB
        ),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (7, 5),
        "nvmlDeviceGetName": lambda handle: f"Tesla T4 number {handle}",
        "nvmlSystemGetDriverVersion": lambda: "580.65.06",
    }
    return SimpleNamespace(**{**working, **changes})


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put something in the place of pynvml; ``None`` is what Python takes for a module that is not there."""

    def put(library: object) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", library)

    return put


def reason(install: Any, library: object) -> str:
    """Why no GPU is seen with this library."""
    install(library)
    seen = see_gpus()
    assert isinstance(seen, NoGpu)
    return seen.reason


def test_without_the_library_the_reason_names_what_to_install(install: Any) -> None:
    assert "nvidia-ml-py" in reason(install, None)


def test_without_a_driver_the_reason_is_nvmls(install: Any) -> None:
    assert "Unknown Error" in reason(install, nvml(nvmlInit=failing))


def test_one_gpu_is_seen_without_what_the_driver_keeps(install: Any) -> None:
    install(nvml())
    assert see_gpus() == (SeenGpu("Tesla T4 number 0", 15 * GIB, 0, "7.5"),)


def test_gpus_are_in_nvmls_order(install: Any) -> None:
    install(nvml(3))
    seen = see_gpus()
    assert not isinstance(seen, NoGpu)
    assert [(gpu.name[-1], gpu.used_bytes) for gpu in seen] == [("0", 0), ("1", GIB), ("2", 2 * GIB)]


def test_a_name_of_bytes_is_text(install: Any) -> None:
    install(nvml(nvmlDeviceGetName=lambda handle: b"Tesla T4"))
    seen = see_gpus()
    assert not isinstance(seen, NoGpu)
    assert seen[0].name == "Tesla T4"


def test_a_machine_with_the_driver_and_no_gpu_has_none(install: Any) -> None:
    assert "no GPU" in reason(install, nvml(0))


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetName",
    ],
)
def test_an_error_in_the_middle_is_a_reason(install: Any, function: str) -> None:
    assert "Unknown Error" in reason(install, nvml(**{function: failing}))


def test_an_error_at_the_second_gpu_is_a_reason(install: Any) -> None:
    def handle(index: int) -> int:
        return index if index == 0 else failing()

    assert "Unknown Error" in reason(install, nvml(2, nvmlDeviceGetHandleByIndex=handle))


def test_nvml_is_shut_down_whatever_happens(install: Any) -> None:
    for changes in ({}, {"nvmlDeviceGetCount": failing}, {"nvmlDeviceGetName": failing}):
        calls: list[str] = []
        install(nvml(nvmlShutdown=lambda calls=calls: calls.append("shut down"), **changes))
        see_gpus()
        assert calls == ["shut down"]


def test_an_error_while_shutting_down_loses_nothing(install: Any) -> None:
    install(nvml(nvmlShutdown=failing))
    assert not isinstance(see_gpus(), NoGpu)


def test_an_error_while_shutting_down_after_another_is_a_reason(install: Any) -> None:
    assert "Unknown Error" in reason(install, nvml(nvmlShutdown=failing, nvmlDeviceGetCount=failing))


@pytest.mark.parametrize("missing", ["nvmlMemory_v2", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetName"])
def test_a_library_too_old_for_a_function_is_a_reason(install: Any, missing: str) -> None:
    library = nvml()
    delattr(library, missing)
    assert missing in reason(install, library)


@pytest.mark.parametrize("version", ["580.65.06", b"580.65.06"])
def test_the_driver_tells_its_version(install: Any, version: str | bytes) -> None:
    install(nvml(nvmlSystemGetDriverVersion=lambda: version))
    assert driver_version() == "580.65.06"


@pytest.mark.parametrize("library", [None, nvml(nvmlInit=failing), nvml(nvmlSystemGetDriverVersion=failing)])
def test_without_a_driver_there_is_no_version(install: Any, library: object) -> None:
    install(library)
    assert driver_version() is None
