"""What NVML can tell about GPUs and the processes on them, as records; what it cannot tell is a type of its own."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Why(StrEnum):
    """Which way something was not told."""

    NOT_SUPPORTED = "not supported"
    NO_PERMISSION = "no permission"
    NO_FUNCTION = "no such function"
    LOST = "the GPU is lost"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that could not be told, and why. Never 0, and never an empty list."""

    reason: str
    why: Why = Why.FAILED


class Absence(StrEnum):
    """What stands between us and the GPUs."""

    NO_PYNVML = "no pynvml"
    NO_DRIVER = "no driver"
    MISMATCH = "driver and library differ"
    NO_PERMISSION = "no permission"
    NO_CARD = "no card"
    HIDDEN = "hidden"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class NoGpu:
    """Why there is no GPU to be seen."""

    reason: str
    absence: Absence = Absence.FAILED


class ProcessState(StrEnum):
    """Whether a process that the driver lists is there. ``UNSEEN``: it is in no pid namespace that we can look into."""

    ALIVE = "alive"
    ZOMBIE = "zombie"
    DEAD = "dead"
    UNSEEN = "unseen"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU. ``used_bytes`` is ``None`` where the driver does not tell."""

    pid: int
    name: str | Unknown
    used_bytes: int | None
    state: ProcessState


class ComputeMode(StrEnum):
    """How many processes may have a context on the card (``nvidia-smi --compute-mode``)."""

    DEFAULT = "default"
    EXCLUSIVE_THREAD = "exclusive-thread"
    PROHIBITED = "prohibited"
    EXCLUSIVE_PROCESS = "exclusive-process"


@dataclass(frozen=True, slots=True)
class Mig:
    """Whether the card is cut up, and the parts that CUDA can use: each a compute instance with its own memory."""

    on: bool
    instances: tuple[SeenGpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGpu:
    """A GPU, or an instance of one in MIG mode, as NVML sees it.

    ``index`` is NVML's, for an instance that of its card. ``total_bytes`` and ``used_bytes`` are without what the
    driver keeps for itself, ``driver_keeps_bytes``; where that is not told, both contain it.
    """

    index: int
    uuid: str
    pci_bus_id: str | Unknown
    name: str
    total_bytes: int
    used_bytes: int
    driver_keeps_bytes: int | Unknown
    compute_capability: str
    processes: tuple[GpuProcess, ...] | Unknown
    compute_mode: ComputeMode | Unknown
    mig: Mig | Unknown

    @property
    def is_instance(self) -> bool:
        """Whether this is a part of a card."""
        return self.uuid.startswith("MIG-")


@dataclass(frozen=True, slots=True)
class UnreadableGpu:
    """A card that is listed and does not answer."""

    index: int
    reason: str
    why: Why = Why.FAILED


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything that NVML tells about this machine; cards in NVML's order, which is not CUDA's."""

    gpus: tuple[SeenGpu, ...]
    unreadable: tuple[UnreadableGpu, ...]
    driver: str | Unknown
    cuda: str | Unknown
    """The newest CUDA that the driver runs, e.g. ``13.0``."""


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The memory of one card at one moment; ``total_bytes`` and ``used_bytes`` as in :class:`SeenGpu`.

    ``own_bytes`` is ``None`` where the driver does not list the process, or not its bytes: in a container the driver
    lists no processes, or those of the host under the host's numbers.
    """

    total_bytes: int
    used_bytes: int
    own_bytes: int | None
    others: tuple[GpuProcess, ...] | Unknown
