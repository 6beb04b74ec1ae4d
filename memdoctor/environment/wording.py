"""Processes and unknown things in words, and the record of a problem."""

from __future__ import annotations

from dataclasses import dataclass

from memdoctor.probes.nvml import GpuProcess, Unknown
from memdoctor.probes.seen import ProcessState
from memdoctor.units import format_bytes

# Root, and a process with CAP_SYS_ADMIN, have all of the driver's capabilities. Source: NVIDIA Multi-Instance GPU User
# Guide, "Device Nodes and Capabilities".
MAY_ASK = "root may ask: sudo, or in a container the capability SYS_ADMIN (docker run --cap-add SYS_ADMIN)"
MAY_TALK = (
    "let this user read and write /dev/nvidia* (ls -l /dev/nvidia* shows who may), or run as root; "
    "start a container with --gpus all"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong or in the way: what, why it matters, and what to do."""

    what: str
    why: str
    hint: str


def process_text(process: GpuProcess) -> str:
    """A process in a few words: ``python (4242) 2.00 GiB``."""
    name = "unnamed" if isinstance(process.name, Unknown) else process.name
    held = "bytes not told" if process.used_bytes is None else format_bytes(process.used_bytes)
    state = "" if process.state in (ProcessState.ALIVE, ProcessState.UNKNOWN) else f", {process.state}"
    return f"{name} ({process.pid}{state}) {held}"


def told(value: str | Unknown) -> str:
    """The text, or that it is unknown and why."""
    return f"unknown: {value.reason}" if isinstance(value, Unknown) else str(value)
