"""The card that a step is measured on, as CUDA and NVML see it: what is its own, and who holds what of it when."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from memdoctor.catalogue import find_gpu
from memdoctor.probes.context import Context, context_of
from memdoctor.probes.cuda_allocator import require_cuda
from memdoctor.probes.nvml import (
    MemoryReading,
    NoGpu,
    SeenGpu,
    Unknown,
    bare_uuid,
    driver_version,
    read_memory,
    see_gpus,
)
from memdoctor.probes.remembered import Setting, remember
from memdoctor.records import Device

Reader = Callable[[], MemoryReading | NoGpu]


@dataclass(frozen=True, slots=True)
class Card:
    """Facts that do not change, what was held before this process had a context (``before``), and ``read`` for now.

    ``name`` is CUDA's, which is NVML's too. ``used`` is CUDA's own count of the bytes in use by all, which is less to
    go by: it cannot be had before there is a context. ``keep`` remembers a context that was measured, or says why not.
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
    keep: Callable[[Context], str | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Held:
    """Who held what of the card when the step was over.

    ``process_bytes`` and ``listed_bytes`` (of other processes that are listed) are NVML's, ``None`` where it does not
    tell; ``others_bytes`` is what is in use beside this process, listed or not, ``None`` where that is not known.
    """

    process_bytes: int | None
    used_bytes: int | None
    listed_bytes: int | None
    context: Context | None
    others_bytes: int | None
    notes: tuple[str, ...] = ()


def open_card() -> Card:
    """The current CUDA device. To be called before this process uses CUDA, to see what was held before.

    Raises:
        MeasureError: there is no CUDA device that works.
    """
    own = os.getpid()
    seen = see_gpus()
    before = {} if isinstance(seen, NoGpu) else {bare_uuid(gpu.uuid): read_memory(gpu.uuid, own) for gpu in _all(seen)}
    require_cuda()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    uuid = str(properties.uuid)
    missing = seen if isinstance(seen, NoGpu) else NoGpu(f"NVML does not know the device {uuid} that CUDA uses")
    cuda, driver = torch.version.cuda or "", driver_version() or ""
    return Card(
        name=properties.name,
        total_bytes=torch.cuda.mem_get_info()[1],
        compute_capability=f"{properties.major}.{properties.minor}",
        uuid=uuid,
        cuda=cuda,
        driver=driver,
        before=before.get(bare_uuid(uuid), missing),
        read=lambda: read_memory(uuid, own),
        used=_used,
        keep=partial(remember, Setting(properties.name, driver, cuda, torch.__version__)),
    )


def _all(seen: Iterable[SeenGpu]) -> Iterator[SeenGpu]:
    """The cards, and the MIG instances of those that are cut up."""
    for gpu in seen:
        yield gpu
        yield from () if isinstance(gpu.mig, Unknown) else gpu.mig.instances


def _used() -> int:
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def held_on(card: Card, reserved_bytes: int) -> Held:
    """Read the card now that the step is over, with ``reserved_bytes`` in PyTorch's hands."""
    before, after = card.before, card.read()
    if isinstance(after, NoGpu):
        return _held_by_all(card, after, reserved_bytes)
    if isinstance(before, NoGpu):
        return _held_by_all(card, before, reserved_bytes)
    context = context_of(before, after, reserved_bytes)
    listed = _listed(after)
    if isinstance(context, Unknown):
        note = f"context not measured, taken from the catalogue: {context.reason}"
        return Held(after.own_bytes, after.used_bytes, listed, None, None, (note,))
    not_kept = card.keep(context)
    notes = (f"the measured context could not be kept for later: {not_kept}",) if not_kept else ()
    others = max(0, after.used_bytes - context.context_bytes - reserved_bytes)
    return Held(after.own_bytes, after.used_bytes, listed, context, others, notes)


def _listed(reading: MemoryReading) -> int | None:
    """What other processes hold, where this process and all of them are listed with their bytes."""
    others = reading.others
    if reading.own_bytes is None or isinstance(others, Unknown):
        return None
    counts = [process.used_bytes for process in others]
    return None if None in counts else sum(count for count in counts if count is not None)


def _held_by_all(card: Card, missing: NoGpu, reserved_bytes: int) -> Held:
    """Without NVML: what all hold less what is reserved, in which the context and other processes are one."""
    used = card.used()
    if used <= reserved_bytes:
        note = f"context not measured, taken from the catalogue: {missing.reason}"
        return Held(None, used, None, None, None, (note,))
    context = Context(used - reserved_bytes, 0, "measured: cudaMemGetInfo's used bytes less reserved, others included")
    note = f"context and other processes are one figure, since NVML does not tell them apart: {missing.reason}"
    return Held(None, used, None, context, 0, (note,))


def device_of(card: Card, held: Held, asked: Device) -> Device:
    """The card as the examination tells of it: what was measured, and of what was not, what ``asked`` says."""
    entry = find_gpu(card.name)
    others = asked.other_processes_bytes if held.others_bytes is None else held.others_bytes
    device = replace(
        asked, name=entry.name if entry is not None else card.name, total_bytes=card.total_bytes,
        compute_capability=card.compute_capability, other_processes_bytes=others, source="measured: cudaMemGetInfo",
    )  # fmt: skip
    if held.context is None:
        return device
    return replace(
        device, context_bytes=held.context.context_bytes, context_error_bytes=held.context.error_bytes,
        context_source=held.context.source,
    )  # fmt: skip
