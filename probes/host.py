"""This machine as a device: its processor, its memory, and what a process holds of it. No torch."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import psutil

from memdoctor.records import NO_CAPABILITY, Device

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def host_device() -> Device:
    """The processor and the memory that a process may use, in the place of a card."""
    total, source = _memory()
    return Device(
        name=_processor(), total_bytes=total, compute_capability=NO_CAPABILITY, context_bytes=0, context_error_bytes=0,
        context_source="not measured: nothing has run", source=source,
    )  # fmt: skip


def with_what_is_held(device: Device) -> Device:
    """The device with what this process and the others hold of it now.

    Others are known where the machine itself is the limit; in a group with a limit of its own they are not counted.
    """
    memory, own = psutil.virtual_memory(), int(psutil.Process().memory_info().rss)
    others = memory.total - memory.available - own if device.total_bytes == memory.total else 0
    return replace(
        device, context_bytes=own, other_processes_bytes=max(0, others),
        context_source="resident memory of the process before the model was made: Python and its libraries",
    )  # fmt: skip


def forget_peak() -> bool:
    """Let the system's record of the most this process held begin anew; false where it cannot (not Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # proc(5): resets VmHWM
    except OSError:
        return False
    return True


def peak_resident_bytes() -> int | None:
    """The most that this process held since :func:`forget_peak`, or since it began; ``None`` where nobody tells."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(found[0]) << 10 if found else None  # the file's unit is kB, by which it means 1024 bytes


def _memory() -> tuple[int, str]:
    total = int(psutil.virtual_memory().total)
    for file in _CGROUP_LIMITS:
        try:
            limit = int(file.read_text(encoding="ascii"))
        except (OSError, ValueError):  # none, or "max"
            continue
        if 0 < limit < total:
            return limit, f"the limit of this process's group ({file})"
    return total, "psutil: the memory of this machine"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, named), platform.processor() or platform.machine() or "CPU")
