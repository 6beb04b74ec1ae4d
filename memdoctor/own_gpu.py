"""This machine's own card as a Device: its size, what others hold of it, and the context that was measured on it."""

from __future__ import annotations

from collections.abc import Mapping

from memdoctor.catalogue import GpuEntry, find_gpu
from memdoctor.probes.context import Context
from memdoctor.probes.nvml import NoGpu, SeenGpu, cuda_numbers
from memdoctor.probes.remembered import recall, setting_here
from memdoctor.records import Device
from memdoctor.units import MIB, format_bytes

# A card that is not in the catalogue: the middle of the readings that are, and wide enough for nearly all of them.
UNKNOWN_CONTEXT_BYTES = 450 * MIB
UNKNOWN_CONTEXT_ERROR_BYTES = 350 * MIB


def own_device(environ: Mapping[str, str]) -> tuple[Device, tuple[str, ...]] | NoGpu:
    """The card that CUDA would call 0 in this environment, and what was assumed; or why there is none."""
    visible = cuda_numbers(environ)
    if isinstance(visible, NoGpu):
        return visible
    device = device_of_seen(visible.gpus[0], environ)
    guesses = () if visible.certain else visible.notes
    return device, (f"GPU {device.name}, the first of this machine", *guesses)


def in_use(device: Device) -> tuple[str, ...]:
    """What is assumed of a card that is in use: that others go on holding what they hold."""
    held = device.other_processes_bytes
    return (f"{format_bytes(held)} of it in use by others (memdoctor env shows by whom)",) if held else ()


def device_of_seen(seen: SeenGpu, environ: Mapping[str, str]) -> Device:
    """The card with its context as it was measured here, else as the catalogue has it, else estimated."""
    entry = find_gpu(seen.name)
    context = remembered_context(seen, environ) or _context_of(entry)
    return Device(
        name=entry.name if entry is not None and not seen.is_instance else seen.name,
        total_bytes=seen.total_bytes,
        compute_capability=seen.compute_capability,
        context_bytes=context.context_bytes,
        context_error_bytes=context.error_bytes,
        context_source=context.source,
        source="NVML: total less what the driver keeps",
        other_processes_bytes=seen.used_bytes,  # all of it: the process that will train has no context yet
    )


def remembered_context(seen: SeenGpu, environ: Mapping[str, str]) -> Context | None:
    """The context that was measured on this machine for a card and driver like these."""
    setting = setting_here(seen.name)
    context = recall(setting, environ) if setting is not None else None
    return context if context is not None and context.context_bytes < seen.total_bytes else None


def _context_of(entry: GpuEntry | None) -> Context:
    if entry is None:
        source = "estimate: no reading of this card is known"
        return Context(UNKNOWN_CONTEXT_BYTES, UNKNOWN_CONTEXT_ERROR_BYTES, source)
    return Context(entry.context_bytes, entry.context_error_bytes, entry.context_source)
