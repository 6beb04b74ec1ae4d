"""A stand-in for nvidia-ml-py's module pynvml, on a machine that is described and not there.

It raises what nvidia-ml-py 13 raises and answers with structs of the same fields. In the test's own process the
fixture ``pretend_gpus`` puts it in pynvml's place; in another process, a directory with this file on PYTHONPATH does,
with the machine as JSON in NVML_STANDIN. What a machine is, :func:`machine` and :func:`card` show.
"""

from __future__ import annotations

import json
import os
import string
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

GIB = 1 << 30
VARIABLE = "NVML_STANDIN"

NVML_ERROR_UNINITIALIZED = 1
NVML_ERROR_INVALID_ARGUMENT = 2
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NO_PERMISSION = 4
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_DRIVER_NOT_LOADED = 9
NVML_ERROR_LIBRARY_NOT_FOUND = 12
NVML_ERROR_FUNCTION_NOT_FOUND = 13
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
NVML_ERROR_UNKNOWN = 999
NVML_VALUE_NOT_AVAILABLE = 2**64 - 1
nvmlMemory_v2 = 0x02000028


def card(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A T4 of 16 GiB, of which the driver keeps one, with nobody on it; ``number`` makes UUID and bus its own."""
    return {
        "name": "Tesla T4", "uuid": f"GPU-{number:08x}-1111-2222-3333-444444444444",
        "bus": f"00000000:{number + 1:02X}:00.0", "total": 16 * GIB, "reserved": GIB, "used": 0, "capability": [7, 5],
        "compute_mode": 0, "mig": None, "processes": [], **changes,
    }  # fmt: skip


def instance(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A compute instance with 5 GiB of an A100 in MIG mode."""
    return {
        "name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "uuid": f"MIG-{number:08x}-5555-6666-7777-888888888888",
        "total": 5 * GIB, "reserved": 0, "used": 0, "processes": [], **changes,
    }  # fmt: skip


def cut_card(*instances: dict[str, Any], number: int = 0, **changes: Any) -> dict[str, Any]:
    """An A100 in MIG mode with these instances."""
    a100 = {"name": "NVIDIA A100-SXM4-40GB", "total": 40 * GIB, "capability": [8, 0], "mig": list(instances)}
    return card(number, **{**a100, **changes})


def process(pid: int, used: int | None, kind: str = "Compute", gpu: int = 0xFFFFFFFF) -> dict[str, Any]:
    """A process in the list of a ``kind`` (Compute, Graphics, MPSCompute), on a GPU instance where there are some."""
    return {"pid": pid, "used": used, "kind": kind, "gpu": gpu}


def machine(*cards: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A machine with these cards.

    ``faults`` maps a function to the error that it answers with, or to the error and how often it answers before;
    ``lacks`` names functions that the driver does not have, ``missing`` those that this pynvml does not have.
    """
    return {
        "driver": "580.65.06", "cuda": 13000, "cards": list(cards), "names": {}, "faults": {}, "lacks": [],
        "missing": [], "bytes": False, **changes,
    }  # fmt: skip


class NVMLLibraryMismatchError(Exception):
    """The driver lacks what a function without a version stands for. Not an :class:`NVMLError`, as in pynvml."""


class NVMLError(Exception):
    """Made with a code, it is of the class of the code."""

    _classes: ClassVar[dict[int, type]] = {}
    _texts: ClassVar[dict[int, str]] = {
        1: "Uninitialized", 2: "Invalid Argument", 3: "Not Supported", 4: "Insufficient Permissions", 6: "Not Found",
        9: "Driver Not Loaded", 12: "NVML Shared Library Not Found", 13: "Function Not Found", 15: "GPU is lost",
        18: "RM has detected an NVML/RM version mismatch.", 999: "Unknown Error",
    }  # fmt: skip

    value: int

    def __new__(cls, value: int = NVML_ERROR_UNKNOWN) -> NVMLError:
        made: NVMLError = Exception.__new__(NVMLError._classes.get(value, cls))
        made.value = value
        return made

    def __str__(self) -> str:
        return self._texts.get(self.value, f"NVML Error with code {self.value}")


for _constant, _value in [(name, value) for name, value in globals().items() if name.startswith("NVML_ERROR_")]:
    _name = "NVMLError_" + string.capwords(_constant.removeprefix("NVML_ERROR_"), "_").replace("_", "")
    NVMLError._classes[_value] = globals()[_name] = type(_name, (NVMLError,), {})

MACHINE: dict[str, Any] = json.loads(os.environ.get(VARIABLE) or json.dumps(machine()))
started = 0
_calls: Counter[str] = Counter()


def pretend(described: dict[str, Any]) -> None:
    """Be on this machine."""
    global MACHINE, started
    MACHINE, started = described, 0
    _calls.clear()
    for name in described["missing"]:
        globals().pop(name, None)


def _check(function: str) -> None:
    """Fail as the machine says that this function does."""
    if not started and function not in ("nvmlInitWithFlags", "nvmlShutdown"):
        raise NVMLError(NVML_ERROR_UNINITIALIZED)
    if function in MACHINE["lacks"]:
        raise NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND)
    _calls[function] += 1
    fault = MACHINE["faults"].get(function)
    code, answers_before = fault if isinstance(fault, list) else (fault, 0)
    if code is not None and _calls[function] > answers_before:
        raise NVMLError(code)


def _text(text: str) -> Any:
    return text.encode() if MACHINE["bytes"] else text


def nvmlInit() -> None:
    global started  # noqa: PLW0603
    _check("nvmlInitWithFlags")
    started += 1


def nvmlShutdown() -> None:
    global started  # noqa: PLW0603
    if not started:
        raise NVMLError(NVML_ERROR_UNINITIALIZED)
    started -= 1
    _check("nvmlShutdown")


def nvmlSystemGetDriverVersion() -> Any:
    _check("nvmlSystemGetDriverVersion")
    return _text(MACHINE["driver"])


def nvmlSystemGetCudaDriverVersion() -> int:
    _check("nvmlSystemGetCudaDriverVersion")
    number: int = MACHINE["cuda"]
    return number


def nvmlSystemGetCudaDriverVersion_v2() -> int:
    _check("nvmlSystemGetCudaDriverVersion_v2")
    number: int = MACHINE["cuda"]
    return number


def nvmlSystemGetProcessName(pid: int) -> Any:
    _check("nvmlSystemGetProcessName")
    if str(pid) not in MACHINE["names"]:
        raise NVMLError(NVML_ERROR_NOT_FOUND)
    return _text(MACHINE["names"][str(pid)])


def nvmlDeviceGetCount() -> int:
    _check("nvmlDeviceGetCount_v2")
    return len(MACHINE["cards"])


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    _check("nvmlDeviceGetHandleByIndex_v2")
    _check(f"nvmlDeviceGetHandleByIndex_v2 {index}")
    handle: dict[str, Any] = MACHINE["cards"][index]
    return handle


def nvmlDeviceGetHandleByUUID(uuid: str) -> dict[str, Any]:
    _check("nvmlDeviceGetHandleByUUID")
    for handle in _handles():
        if handle["uuid"] == uuid:
            return handle
    raise NVMLError(NVML_ERROR_NOT_FOUND)


def _handles() -> Iterator[dict[str, Any]]:
    for handle in MACHINE["cards"]:
        yield handle
        yield from handle["mig"] or ()


def nvmlDeviceGetName(handle: dict[str, Any]) -> Any:
    _check("nvmlDeviceGetName")
    return _text(handle["name"])


def nvmlDeviceGetUUID(handle: dict[str, Any]) -> Any:
    _check("nvmlDeviceGetUUID")
    return _text(handle["uuid"])


def nvmlDeviceGetPciInfo_v3(handle: dict[str, Any]) -> SimpleNamespace:
    _check("nvmlDeviceGetPciInfo_v3")
    return SimpleNamespace(busId=_text(handle["bus"]), busIdLegacy=_text(handle["bus"][4:]))


def nvmlDeviceGetPciInfo(handle: dict[str, Any]) -> SimpleNamespace:
    return nvmlDeviceGetPciInfo_v3(handle)


def nvmlDeviceGetCudaComputeCapability(handle: dict[str, Any]) -> tuple[int, int]:
    _check("nvmlDeviceGetCudaComputeCapability")
    major, minor = handle["capability"]
    return major, minor


def nvmlDeviceGetComputeMode(handle: dict[str, Any]) -> int:
    _check("nvmlDeviceGetComputeMode")
    mode: int = handle["compute_mode"]
    return mode


def nvmlDeviceGetMemoryInfo(handle: dict[str, Any], version: int | None = None) -> SimpleNamespace:
    """Total counts what the driver keeps; ``used`` counts it in the first version of the struct only."""
    _check("nvmlDeviceGetMemoryInfo_v2" if version else "nvmlDeviceGetMemoryInfo")
    total, kept, used = handle["total"], handle["reserved"], handle["used"]
    free = total - kept - used
    if not version:
        return SimpleNamespace(total=total, free=free, used=used + kept)
    return SimpleNamespace(version=version, total=total, reserved=kept, free=free, used=used)


def _list(kind: str, version: int) -> Callable[[dict[str, Any]], list[SimpleNamespace]]:
    def processes(handle: dict[str, Any]) -> list[SimpleNamespace]:
        _check(f"nvmlDeviceGet{kind}RunningProcesses_v{version}")
        return [
            SimpleNamespace(
                pid=each["pid"], usedGpuMemory=None if each["used"] == NVML_VALUE_NOT_AVAILABLE else each["used"],
                gpuInstanceId=each["gpu"], computeInstanceId=each["gpu"],
            )
            for each in handle["processes"] if each["kind"] == kind
        ]  # fmt: skip

    return processes


def _newest(processes: Callable[[dict[str, Any]], list[SimpleNamespace]]) -> Callable[[dict[str, Any]], Any]:
    def checked(handle: dict[str, Any]) -> list[SimpleNamespace]:
        try:
            return processes(handle)
        except NVMLError as error:
            if error.value == NVML_ERROR_FUNCTION_NOT_FOUND:
                raise NVMLLibraryMismatchError("Unversioned function called") from error
            raise

    return checked


nvmlDeviceGetComputeRunningProcesses_v2 = _list("Compute", 2)
nvmlDeviceGetComputeRunningProcesses_v3 = _list("Compute", 3)
nvmlDeviceGetComputeRunningProcesses = _newest(nvmlDeviceGetComputeRunningProcesses_v3)
nvmlDeviceGetGraphicsRunningProcesses_v3 = _list("Graphics", 3)
nvmlDeviceGetMPSComputeRunningProcesses_v3 = _list("MPSCompute", 3)


def nvmlDeviceGetMigMode(handle: dict[str, Any]) -> list[int]:
    """Current and pending. A card that cannot be cut up says that it is not supported."""
    _check("nvmlDeviceGetMigMode")
    if handle["mig"] is None:
        raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
    return [1, 1]


def nvmlDeviceGetMaxMigDeviceCount(handle: dict[str, Any]) -> int:
    _check("nvmlDeviceGetMaxMigDeviceCount")
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle: dict[str, Any], index: int) -> dict[str, Any]:
    _check("nvmlDeviceGetMigDeviceHandleByIndex")
    if index >= len(handle["mig"]):
        raise NVMLError(NVML_ERROR_NOT_FOUND)
    part: dict[str, Any] = handle["mig"][index]
    return part


pretend(MACHINE)
