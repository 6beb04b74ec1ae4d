"""Which GPUs this machine has and who uses them, through NVML; the one file that imports pynvml (of nvidia-ml-py).

What the library cannot answer is an :class:`~memdoctor.probes.seen.Unknown` with its reason, so that neither an old
driver nor a card that falls off the bus in the middle is an exception, or a zero that nobody measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from memdoctor.probes.answers import text, whole
from memdoctor.probes.door import Door, code_of, text_of
from memdoctor.probes.looking import look, memory_of, processes_of
from memdoctor.probes.seen import (
    Absence,
    GpuProcess,
    MemoryReading,
    NoGpu,
    SeenGpu,
    Survey,
    Unknown,
    UnreadableGpu,
    Why,
)
from memdoctor.probes.visibility import Visible, as_cuda_numbers

__all__ = [
    "Absence", "GpuProcess", "MemoryReading", "NoGpu", "SeenGpu", "Survey", "Unknown", "cuda_numbers",
    "driver_version", "gpu_with_uuid", "read_memory", "see_gpus", "survey", "visible_gpus",
]  # fmt: skip

# Error codes of nvml.h (nvmlReturn_t): driver not loaded, library not found, library and driver of two versions;
# and a user who may not talk to the driver.
_ABSENCE = {4: Absence.NO_PERMISSION, 9: Absence.NO_DRIVER, 12: Absence.NO_DRIVER, 18: Absence.MISMATCH}


def survey() -> Survey | NoGpu:
    """Everything that NVML tells about this machine, or why it tells nothing."""
    with _opened() as nvml:
        if isinstance(nvml, NoGpu):
            return nvml
        count = nvml.ask("nvmlDeviceGetCount", read=whole)
        if isinstance(count, Unknown):
            denied = count.why is Why.NO_PERMISSION
            return NoGpu(
                f"NVML cannot count the GPUs: {count.reason}", Absence.NO_PERMISSION if denied else Absence.FAILED
            )
        looked = [look(nvml, index) for index in range(count)]
        return Survey(
            gpus=tuple(gpu for gpu in looked if isinstance(gpu, SeenGpu)),
            unreadable=tuple(gpu for gpu in looked if isinstance(gpu, UnreadableGpu)),
            driver=nvml.ask("nvmlSystemGetDriverVersion", read=text),
            cuda=nvml.ask_first(
                ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"), read=_cuda_version
            ),
        )


def see_gpus() -> tuple[SeenGpu, ...] | NoGpu:
    """The GPUs of this machine in NVML's order without those that do not answer, or why there are none."""
    seen = survey()
    return seen if isinstance(seen, NoGpu) else seen.gpus or _none(seen)


def visible_gpus(environ: Mapping[str, str]) -> tuple[SeenGpu, ...] | NoGpu:
    """The GPUs as CUDA would number them in this environment, or why it would see none."""
    visible = cuda_numbers(environ)
    return visible if isinstance(visible, NoGpu) else visible.gpus


def cuda_numbers(environ: Mapping[str, str]) -> Visible | NoGpu:
    """As :func:`visible_gpus`, with what is a guess about it; never without a GPU."""
    seen = survey()
    if isinstance(seen, NoGpu):
        return seen
    if not seen.gpus:
        return _none(seen)
    visible = as_cuda_numbers(seen, environ)
    return visible if visible.gpus else NoGpu(f"CUDA sees no GPU: {'; '.join(visible.notes)}", Absence.HIDDEN)


def gpu_with_uuid(uuid: str) -> SeenGpu | NoGpu:
    """The GPU or MIG instance of this UUID, with or without its prefix, in any case (torch leaves the prefix out)."""
    seen = survey()
    if isinstance(seen, NoGpu):
        return seen
    for gpu in seen.gpus:
        instances = () if isinstance(gpu.mig, Unknown) else gpu.mig.instances
        for candidate in (gpu, *instances):
            if bare_uuid(candidate.uuid) == bare_uuid(uuid):
                return candidate
    failed = f"; {_none(seen).reason}" if seen.unreadable else ""
    return NoGpu(f"NVML sees no GPU {uuid}{failed}", Absence.NO_CARD)


def read_memory(uuid: str, pid: int) -> MemoryReading | NoGpu:
    """The memory of the GPU or MIG instance of this UUID now, and what of it the process ``pid`` holds."""
    with _opened() as nvml:
        if isinstance(nvml, NoGpu):
            return nvml
        handle = _handle(nvml, uuid)
        if isinstance(handle, Unknown):
            return NoGpu(f"NVML cannot find the GPU {uuid}: {handle.reason}")
        memory = memory_of(nvml, handle)
        if isinstance(memory, Unknown):
            return NoGpu(f"NVML cannot tell the memory of the GPU {uuid}: {memory.reason}")
        processes = processes_of(nvml, handle)
    if isinstance(processes, Unknown):
        return MemoryReading(memory[0], memory[1], None, processes)
    own = next((process.used_bytes for process in processes if process.pid == pid), None)
    return MemoryReading(memory[0], memory[1], own, tuple(process for process in processes if process.pid != pid))


def driver_version() -> str | None:
    """The NVIDIA driver's version, or ``None`` where there is no driver."""
    with _opened() as nvml:
        version = nvml if isinstance(nvml, NoGpu) else nvml.ask("nvmlSystemGetDriverVersion", read=text)
    return version if isinstance(version, str) else None


@contextmanager
def _opened() -> Iterator[Door | NoGpu]:
    """NVML, started and shut down again, or why it does not start."""
    try:
        import pynvml
    except Exception as error:  # noqa: BLE001 - not installed, or another thing of that name
        yield NoGpu(f"pynvml cannot be imported ({error}); it comes with nvidia-ml-py", Absence.NO_PYNVML)
        return
    try:
        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001 - as in the door: whatever stands in the library's way is a reason
        yield NoGpu(f"NVML cannot start: {text_of(error)}", _ABSENCE.get(code_of(error), Absence.FAILED))
        return
    nvml = Door(pynvml)
    try:
        yield nvml
    finally:
        nvml.ask("nvmlShutdown")


def _handle(nvml: Door, uuid: str) -> object:
    """NVML's handle for the UUID as it is, as a card's and as an instance's; else Unknown, of the first attempt."""
    tried = [uuid, f"GPU-{bare_uuid(uuid)}", f"MIG-{bare_uuid(uuid)}"]
    answers = [nvml.ask("nvmlDeviceGetHandleByUUID", text) for text in dict.fromkeys(tried)]
    return next((answer for answer in answers if not isinstance(answer, Unknown)), answers[0])


def bare_uuid(uuid: str) -> str:
    """A UUID without the prefix that tells cards from instances."""
    kind, dash, rest = uuid.strip().lower().partition("-")
    return rest if kind in ("gpu", "mig") else f"{kind}{dash}{rest}"


def _cuda_version(number: int) -> str:
    """NVML counts 13000 for 13.0 (``NVML_CUDA_DRIVER_VERSION_MAJOR`` and ``_MINOR`` of nvml.h)."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _none(seen: Survey) -> NoGpu:
    if not seen.unreadable:
        return NoGpu("NVML sees no GPU", Absence.NO_CARD)
    return NoGpu("; ".join(f"GPU {gpu.index} does not answer: {gpu.reason}" for gpu in seen.unreadable))
