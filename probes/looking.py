"""What NVML tells about one card: questions asked through the door, answers put into records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from memdoctor.probes.answers import capability, card_name, text, whole
from memdoctor.probes.door import Door, decoded
from memdoctor.probes.processes import look_up
from memdoctor.probes.seen import ComputeMode, GpuProcess, Mig, SeenGpu, Unknown, UnreadableGpu, Why
from memdoctor.units import format_bytes

_NOT_AVAILABLE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE of nvml.h; pynvml turns it into None in some places, not in all
# nvmlComputeMode_t of nvml.h, by its numbers.
_COMPUTE_MODES = (
    ComputeMode.DEFAULT, ComputeMode.EXCLUSIVE_THREAD, ComputeMode.PROHIBITED, ComputeMode.EXCLUSIVE_PROCESS,
)  # fmt: skip
_COMPUTING = "nvmlDeviceGetComputeRunningProcesses"
_MORE = ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")

Memory = tuple[int, int, int | Unknown]
"""Total, used and what the driver keeps, in bytes."""
Place = tuple[int, Any, Any]
"""Pid, GPU instance and compute instance."""


def look(nvml: Door, index: int) -> SeenGpu | UnreadableGpu:
    """The card of this number of NVML's, or why it does not answer."""
    handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
    if isinstance(handle, Unknown):
        return UnreadableGpu(index, handle.reason, handle.why)
    computes = nvml.ask("nvmlDeviceGetCudaComputeCapability", handle, read=capability)
    if isinstance(computes, Unknown):
        return UnreadableGpu(index, f"no compute capability: {computes.reason}", computes.why)
    shared: dict[str, Any] = {
        "index": index,
        "compute_capability": computes,
        "compute_mode": nvml.ask("nvmlDeviceGetComputeMode", handle, read=_compute_mode),
        "pci_bus_id": nvml.ask_first(
            ("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo"),
            handle,
            read=lambda pci: text(decoded(pci.busId)).upper(),
        ),
    }
    seen = _see(nvml, handle, shared, mig=_mig(nvml, handle, shared))
    return UnreadableGpu(index, seen.reason, seen.why) if isinstance(seen, Unknown) else seen


def memory_of(nvml: Door, handle: Any) -> Memory | Unknown:
    """``nvmlMemory_v2_t``, else ``nvmlMemory_t``, where ``used`` contains what the driver keeps, which is not told."""
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle, version=nvml.constant("nvmlMemory_v2"), read=_memory)
    if isinstance(memory, Unknown):
        memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle, read=_memory)
    answer: Memory | Unknown = memory
    return answer


def processes_of(nvml: Door, handle: Any) -> tuple[GpuProcess, ...] | Unknown:
    """Who has a context on it, by pid. Computing must be told; graphics and MPS are added where they are."""
    computing = _listed(nvml, handle, _COMPUTING)
    if isinstance(computing, Unknown):
        return computing
    more = [entries for entries in (_listed(nvml, handle, name) for name in _MORE) if not isinstance(entries, Unknown)]
    held: dict[Place, int | None] = {}
    for place, count in (*computing, *(entry for entries in more for entry in entries)):
        # A process that computes and draws is in two lists with the same bytes; on two instances it has two shares.
        held[place] = max((told for told in (held.get(place), count) if told is not None), default=None)
    return tuple(_process(nvml, pid, held) for pid in sorted({place[0] for place in held}))


def _see(nvml: Door, handle: Any, shared: Mapping[str, Any], *, mig: Mig | Unknown) -> SeenGpu | Unknown:
    """A card or an instance; or the first thing that cannot be done without and is not told."""
    name, uuid = nvml.ask("nvmlDeviceGetName", handle, read=card_name), nvml.ask("nvmlDeviceGetUUID", handle, read=text)
    memory = memory_of(nvml, handle)
    for what, answer in (("name", name), ("UUID", uuid)):
        if isinstance(answer, Unknown):
            return Unknown(f"no {what}: {answer.reason}", answer.why)
    if isinstance(memory, Unknown):
        return Unknown(f"no memory: {memory.reason}", memory.why)
    return SeenGpu(
        **shared, name=name, uuid=uuid, total_bytes=memory[0], used_bytes=memory[1], driver_keeps_bytes=memory[2],
        processes=processes_of(nvml, handle), mig=mig,
    )  # fmt: skip


def _mig(nvml: Door, handle: Any, shared: Mapping[str, Any]) -> Mig | Unknown:
    on = nvml.ask("nvmlDeviceGetMigMode", handle, read=lambda modes: bool(modes[0]))  # the current one; [1] is pending
    if isinstance(on, Unknown):  # cards that cannot be cut up say so, or their driver does not know the question
        return Mig(on=False) if on.why in (Why.NOT_SUPPORTED, Why.NO_FUNCTION) else on
    if not on:
        return Mig(on=False)
    count = nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle, read=whole)
    if isinstance(count, Unknown):
        return Unknown(f"MIG is on, and its instances are not told: {count.reason}", count.why)
    handles = [nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(count)]
    parts = [_see(nvml, part, shared, mig=Mig(on=False)) for part in handles if not isinstance(part, Unknown)]
    return Mig(on=True, instances=tuple(part for part in parts if isinstance(part, SeenGpu)))


def _compute_mode(number: int) -> ComputeMode | Unknown:
    return _COMPUTE_MODES[number] if 0 <= number < len(_COMPUTE_MODES) else Unknown(f"it is number {number}")


def _memory(memory: Any) -> Memory | Unknown:
    kept = getattr(memory, "reserved", None)
    total, used = whole(memory.total) - whole(kept or 0), whole(memory.used)
    if not 0 < total < _NOT_AVAILABLE or used > total:
        return Unknown(f"{format_bytes(used)} in use of {format_bytes(total)}: that cannot be")
    return total, used, Unknown("the driver does not tell what it keeps") if kept is None else kept


def _listed(nvml: Door, handle: Any, function: str) -> list[tuple[Place, int | None]] | Unknown:
    def read(entries: Any) -> list[tuple[Place, int | None]]:
        return [
            (
                (whole(entry.pid), getattr(entry, "gpuInstanceId", None), getattr(entry, "computeInstanceId", None)),
                _told(entry.usedGpuMemory),
            )
            for entry in entries
        ]

    answer: list[tuple[Place, int | None]] | Unknown
    answer = nvml.ask_first((f"{function}_v3", f"{function}_v2", function), handle, read=read)
    return answer


def _told(count: int | None) -> int | None:
    """A context takes memory: a listed process with 0 bytes is one whose bytes are not told."""
    return None if count in (None, 0, _NOT_AVAILABLE) else whole(count)


def _process(nvml: Door, pid: int, held: Mapping[Place, int | None]) -> GpuProcess:
    shares = [count for place, count in held.items() if place[0] == pid]
    known = [count for count in shares if count is not None]
    name, state = look_up(pid)
    if isinstance(name, Unknown):
        told = nvml.ask("nvmlSystemGetProcessName", pid, read=lambda path: PurePath(path).name)
        name = told if isinstance(told, str) and told else name
    return GpuProcess(pid, name, sum(known) if len(known) == len(shares) else None, state)
