"""The card that a step is measured on, as CUDA and NVML see it: what is its own, and who holds what of it when."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from memdoctor.catalogue import find_gpu
from memdoctor.probes.context import Context, context_of
from memdoctor.probes.cuda_allocator import require_cuda
from memdoctor.probes.nvml import MemoryReading, NoGpu, Unknown, driver_version, read_memory, see_gpus
from memdoctor.records import Device

Reader = Callable[[], MemoryReading | NoGpu]


@dataclass(frozen=True, slots=True)
class Card:
    """Facts that do not change, what was held before this process had a context (``before``), and ``read`` for now.

    ``name`` is CUDA's, which is NVML's too. ``used`` is CUDA's own count of the bytes in use by all, which is less to
    go by: it cannot be had before there is a context.
    """

    name: str
    total_bytes: int
    compute_capability: str
    uuid: str
    cuda: str
    driver: str
    before: MemoryReading | NoGpu
    read: Reader
    used: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Held:
    """Who held what of the card when the step was over; ``None`` where NVML does not tell."""

    process_bytes: int | None
    used_bytes: int | None
    context: Context | None
    others_bytes: int
    note: str = ""


def open_card() -> Card:
    """The current CUDA device. To be called before this process uses CUDA, to see what was held before.

    Raises:
        MeasureError: there is no CUDA device that works.
    """
    own = os.getpid()
    seen = see_gpus()
    before = {} if isinstance(seen, NoGpu) else {_bare(gpu.uuid): read_memory(gpu.uuid, own) for gpu in seen}
    require_cuda()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = str(properties.uuid)
    missing = seen if isinstance(seen, NoGpu) else NoGpu(f"NVML does not know the device {uuid} that CUDA uses")
    return Card(
        name=properties.name,
        total_bytes=torch.cuda.mem_get_info()[1],
        compute_capability=f"{properties.major}.{properties.minor}",
        uuid=uuid,
        cuda=torch.version.cuda or "",
        driver=driver_version() or "",
        before=before.get(_bare(uuid), missing),
        read=lambda: read_memory(uuid, own),
        used=_used,
    )


def _used() -> int:
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-")


def held_on(card: Card, reserved_bytes: int) -> Held:
    """Read the card now that the step is over, with ``reserved_bytes`` in PyTorch's hands."""
    after = card.read()
    if isinstance(after, NoGpu) or isinstance(card.before, NoGpu):
        return _held_by_all(card, after if isinstance(after, NoGpu) else card.before, reserved_bytes)
    context = context_of(card.before, after, reserved_bytes)
    if isinstance(context, Unknown):
        note = f"context not measured, taken from the catalogue: {context.reason}"
        return Held(after.own_bytes, after.used_bytes, None, 0, note)
    own = context.context_bytes + reserved_bytes
    return Held(after.own_bytes, after.used_bytes, context, max(0, after.used_bytes - own))


def _held_by_all(card: Card, missing: MemoryReading | NoGpu, reserved_bytes: int) -> Held:
    """Without NVML: what all hold less what is reserved, in which the context and other processes are one."""
    assert isinstance(missing, NoGpu)
    used = card.used()
    context = Context(used - reserved_bytes, 0, "measured: cudaMemGetInfo's used bytes less reserved, others included")
    note = f"context and other processes are one figure, since NVML does not tell them apart: {missing.reason}"
    return Held(None, used, context, 0, note)


def device_of(card: Card, held: Held, asked: Device) -> Device:
    """The card as the examination tells of it: what was measured, and of what was not, what ``asked`` says."""
    entry = find_gpu(card.name)
    device = replace(
        asked, name=entry.name if entry is not None else card.name, total_bytes=card.total_bytes,
        compute_capability=card.compute_capability, other_processes_bytes=held.others_bytes,
        source="measured: cudaMemGetInfo",
    )  # fmt: skip
    if held.context is None:
        return device
    return replace(
        device, context_bytes=held.context.context_bytes, context_error_bytes=held.context.error_bytes,
        context_source=held.context.source,
    )  # fmt: skip
