"""Which GPUs this machine has, through NVML; the one file that imports pynvml (of the distribution nvidia-ml-py)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """A GPU as NVML sees it. ``total_bytes`` is without what the driver keeps for itself."""

    name: str
    total_bytes: int
    used_bytes: int
    compute_capability: str


@dataclass(frozen=True, slots=True)
class NoGpu:
    """Why there is no GPU to be seen."""

    reason: str


def see_gpus() -> tuple[SeenGpu, ...] | NoGpu:
    """The GPUs of this machine in NVML's order, or why there are none."""
    try:
        import pynvml
    except ImportError as error:
        return NoGpu(f"pynvml cannot be imported ({error}); it comes with nvidia-ml-py")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NoGpu(f"NVML cannot start: {error}")
    try:
        seen = tuple(_see(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        return NoGpu(f"NVML failed: {error}")
    except AttributeError as error:
        return NoGpu(f"this pynvml is too old: {error}")
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return seen or NoGpu("NVML sees no GPU")


def driver_version() -> str | None:
    """The NVIDIA driver's version, or ``None`` where there is no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()
    except Exception:  # noqa: BLE001 - no library, driver or permission: all mean that it cannot be told
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


def _see(pynvml: object, index: int) -> SeenGpu:
    nvml: object = pynvml
    handle = nvml.nvmlDeviceGetHandleByIndex(index)  # type: ignore[attr-defined]  # pynvml is untyped
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)  # type: ignore[attr-defined]
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)  # type: ignore[attr-defined]
    name = nvml.nvmlDeviceGetName(handle)  # type: ignore[attr-defined]
    return SeenGpu(
        name=name.decode() if isinstance(name, bytes) else name,
        total_bytes=memory.total - memory.reserved,
        used_bytes=memory.used,
        compute_capability=f"{major}.{minor}",
    )
