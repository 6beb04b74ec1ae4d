"""One workload on one device, step by step: the saved file from which everything downstream starts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from memdoctor.records.timeline import Timeline
from memdoctor.records.workload import Device, Workload


class Backend(StrEnum):
    """Where a probe runs its step: on a GPU, on a simulated one, or on the CPU."""

    SIMULATED = "simulated"
    GPU = "gpu"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Completed:
    """Every step ran to its end on this device."""


@dataclass(frozen=True, slots=True)
class RanOut:
    """The step ran out of memory: a result, not a crash. ``event`` is the timeline event that could not be served.

    The figures are those of PyTorch's message, read after every cached segment went back: ``segment_bytes`` is what
    it "tried to allocate", ``free_bytes`` what the card had left, ``allocated_bytes`` and ``reserved_bytes`` what
    PyTorch held; the last three are ``None`` in files of memdoctor 0.1. A simulated step then goes on on the
    smallest card that it fits, so that the timeline still shows what it would have needed.
    """

    requested_bytes: int
    free_bytes: int
    event: int
    segment_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None


Outcome = Completed | RanOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How the evidence was obtained: ``mode`` is ``simulated`` or ``measured``.

    ``cuda`` is the release that PyTorch was built with, ``driver`` that of NVIDIA's driver; empty without a GPU.
    """

    mode: str
    memdoctor: str
    torch: str
    transformers: str
    python: str
    created: str
    model_source: str
    attention_kernels: tuple[str, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    cuda: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What others counted of a measured run, to hold its timeline to.

    The first four are PyTorch's (``torch.cuda.max_memory_allocated()`` and its kin), the others are read
    after the run: what this process holds on the card and what other processes that are listed do (NVML; ``None`` where
    it does not tell), and what is in use by all, as nvidia-smi shows (NVML, else ``cudaMemGetInfo``).
    """

    max_memory_allocated_bytes: int
    max_memory_reserved_bytes: int
    memory_allocated_bytes: int
    memory_reserved_bytes: int
    process_bytes: int | None = None
    listed_bytes: int | None = None
    used_bytes: int | None = None

    def __post_init__(self) -> None:
        """Nothing counts to less than 0."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value < 0:
                raise ValueError(f"{field.name} is {value}, but must not be negative")


@dataclass(frozen=True, slots=True)
class Examination:
    """One workload on one device, step by step: the saved file from which everything downstream starts.

    ``counters`` are there where a GPU was measured. ``repeated_micro_steps`` of each step are not in the timeline,
    because they repeat the last one that is, and with them nothing changes.
    """

    workload: Workload
    device: Device
    provenance: Provenance
    outcome: Outcome
    timeline: Timeline
    counters: Counters | None = None
    repeated_micro_steps: int = 0

    def __post_init__(self) -> None:
        """Something happened, and a run that ran out did so at an event of its timeline."""
        if not 0 <= self.repeated_micro_steps < self.workload.gradient_accumulation_steps:
            raise ValueError(
                f"{self.repeated_micro_steps} of {self.workload.gradient_accumulation_steps} micro-steps repeat another"
            )
        if not self.timeline.events:
            raise ValueError("its timeline is empty")
        if isinstance(self.outcome, RanOut) and not 0 <= self.outcome.event < len(self.timeline.events):
            raise ValueError("it ran out of memory at an event that is not there")
