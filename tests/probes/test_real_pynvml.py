"""The installed nvidia-ml-py itself, over a library of C functions that is pretended: real structs, real errors."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memdoctor.probes.looking as looking_module
import memdoctor.probes.nvml as nvml_module
from memdoctor.probes.nvml import NoGpu, Survey, Unknown, read_memory, survey
from memdoctor.probes.seen import Absence, ComputeMode, Mig, Why

GIB = 1 << 30
UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
SUCCESS, NOT_SUPPORTED, TOO_SMALL, LOST = 0, 3, 7, 15
NOT_AVAILABLE = 2**64 - 1


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A copy of the installed module of its own; it looks for itself in sys.modules while it is made."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.loader is None:
        pytest.skip("nvidia-ml-py is not installed")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    spec.loader.exec_module(module)
    return module


class Library:
    """``libnvidia-ml.so.1`` with a card and two processes, for pynvml: answers through pointers, a code back."""

    def __init__(self, **changes: Callable[..., int] | None) -> None:
        self._changes = changes

    def __getattribute__(self, name: str) -> Any:
        changes = object.__getattribute__(self, "_changes")
        function = changes[name] if name in changes else object.__getattribute__(self, name)
        if function is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:  # pynvml sets restype on what it gets, as on a function of ctypes
            code: int = function(*arguments)
            return code

        return call

    def nvmlInitWithFlags(self, flags: int) -> int:
        return SUCCESS

    def nvmlShutdown(self) -> int:
        return SUCCESS

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 1
        return SUCCESS

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        return SUCCESS

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:
        return SUCCESS if uuid.value == UUID.encode() else 6

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> int:
        text.value = b"NVIDIA H200"
        return SUCCESS

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, size: Any) -> int:
        text.value = UUID.encode()
        return SUCCESS

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        info._obj.busId = b"00000000:3B:00.0"
        return SUCCESS

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> int:
        assert memory._obj.version == 0x02000028
        memory._obj.total, memory._obj.reserved = 141 * GIB, GIB
        memory._obj.used, memory._obj.free = 4 * GIB, 136 * GIB
        return SUCCESS

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used, memory._obj.free = 141 * GIB, 5 * GIB, 136 * GIB
        return SUCCESS

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 9, 0
        return SUCCESS

    def nvmlDeviceGetComputeMode(self, handle: Any, mode: Any) -> int:
        mode._obj.value = 3
        return SUCCESS

    def nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        return NOT_SUPPORTED

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, entries: Any) -> int:
        if entries is None:
            count._obj.value = 2
            return TOO_SMALL
        count._obj.value = 2
        for entry, (pid, used) in zip(entries, ((7, 3 * GIB), (8, NOT_AVAILABLE)), strict=False):
            entry.pid, entry.usedGpuMemory, entry.gpuInstanceId, entry.computeInstanceId = (
                pid,
                used,
                2**32 - 1,
                2**32 - 1,
            )
        return SUCCESS

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Any, count: Any, entries: Any) -> int:
        return SUCCESS

    def nvmlSystemGetProcessName(self, pid: Any, text: Any, size: Any) -> int:
        text.value = b"/usr/bin/python3"
        return SUCCESS

    def nvmlSystemGetDriverVersion(self, text: Any, size: Any) -> int:
        text.value = b"580.65.06"
        return SUCCESS

    def nvmlSystemGetCudaDriverVersion_v2(self, version: Any) -> int:
        version._obj.value = 13000
        return SUCCESS

    def nvmlErrorString(self, code: int) -> bytes:
        return b"something new"


@pytest.fixture
def load(real: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Put the installed pynvml over this library."""

    def put(library: Any) -> None:
        real.nvmlLib = library
        monkeypatch.setitem(sys.modules, "psutil", None)

    return put


def surveyed() -> Survey:
    """What NVML tells, which it must."""
    seen = survey()
    assert isinstance(seen, Survey), seen.reason
    return seen


def test_its_structs_are_read(load: Any) -> None:
    load(Library())
    seen = surveyed()
    (gpu,) = seen.gpus
    assert (seen.driver, seen.cuda) == ("580.65.06", "13.0")
    assert (gpu.name, gpu.uuid, gpu.pci_bus_id, gpu.compute_capability) == (
        "NVIDIA H200",
        UUID,
        "00000000:3B:00.0",
        "9.0",
    )
    assert (gpu.total_bytes, gpu.used_bytes, gpu.driver_keeps_bytes) == (140 * GIB, 4 * GIB, GIB)
    assert (gpu.compute_mode, gpu.mig) == (ComputeMode.EXCLUSIVE_PROCESS, Mig(on=False))
    assert not isinstance(gpu.processes, Unknown)
    assert [(each.pid, each.name, each.used_bytes) for each in gpu.processes] == [
        (7, "python3", 3 * GIB), (8, "python3", None),
    ]  # fmt: skip


def test_a_card_is_found_by_its_uuid(load: Any) -> None:
    load(Library())
    reading = read_memory(UUID.removeprefix("GPU-"), 7)
    assert not isinstance(reading, NoGpu), reading.reason
    assert (reading.used_bytes, reading.own_bytes) == (4 * GIB, 3 * GIB)


def test_a_driver_without_the_newer_functions(load: Any) -> None:
    newer = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMigMode")
    load(Library(**dict.fromkeys(newer)))
    (gpu,) = surveyed().gpus
    assert (gpu.total_bytes, gpu.used_bytes, gpu.mig) == (141 * GIB, 5 * GIB, Mig(on=False))
    assert isinstance(gpu.processes, Unknown)
    assert gpu.processes.why is Why.NO_FUNCTION


@pytest.mark.parametrize(
    ("code", "words"), [(LOST, "GPU is lost"), (NOT_SUPPORTED, "Not Supported"), (4711, "something new")]
)
def test_its_errors_are_reasons(load: Any, code: int, words: str) -> None:
    load(Library(nvmlDeviceGetName=lambda *arguments: code))
    (gpu,) = surveyed().unreadable
    assert words in gpu.reason


@pytest.mark.parametrize(("code", "absence"), [(9, Absence.NO_DRIVER), (18, Absence.MISMATCH), (999, Absence.FAILED)])
def test_a_start_that_fails(load: Any, code: int, absence: Absence) -> None:
    load(Library(nvmlInitWithFlags=lambda flags: code))
    seen = survey()
    assert isinstance(seen, NoGpu)
    assert seen.absence is absence


def test_a_machine_without_the_library(real: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(real, "CDLL", missing)
    seen = survey()
    assert isinstance(seen, NoGpu)
    assert (seen.absence, "Library Not Found" in seen.reason) == (Absence.NO_DRIVER, True)


def test_every_function_that_is_asked_for_is_one_of_its(real: Any) -> None:
    source = "".join(Path(str(module.__file__)).read_text("utf-8") for module in (looking_module, nvml_module))
    asked = set(re.findall(r'"(nvml[A-Z]\w+)"', source))
    assert len(asked) > 15
    assert asked <= set(dir(real))


def test_the_stand_in_has_its_names_and_errors(real: Any, nvml: Any) -> None:
    names = {name for name in dir(nvml) if name.lower().startswith("nvml") and name != "NVML_VALUE_NOT_AVAILABLE"}
    later = {"NVMLLibraryMismatchError", "nvmlDeviceGetComputeRunningProcesses_v2"}  # than 12.535, which will do
    assert names - later <= set(dir(real))
    for name in names & set(dir(real)):
        theirs, ours = getattr(real, name), getattr(nvml, name)
        if inspect.isfunction(theirs):
            assert len(inspect.signature(ours).parameters) == len(inspect.signature(theirs).parameters), name
        elif name.startswith("NVML_ERROR_"):
            assert ours == theirs
            assert type(nvml.NVMLError(ours)).__name__ == type(real.NVMLError(theirs)).__name__
            assert str(nvml.NVMLError(ours)) == str(real.NVMLError(theirs))
