"""What is concluded from the evidence, part by part. Field names are the keys of the JSON report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memdoctor.records.breakdown import Breakdown
from memdoctor.records.timeline import Category

Change = Mapping[str, str | int | float | bool | tuple[str, ...] | None]
"""Fields of a Workload and their new values; each can be typed back as an option, ``None`` by leaving the option out.

``cuda_alloc_conf`` is one more: settings of the allocator belong to the device, and can be changed all the same.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most memory held, over all steps.

    ``allocated_bytes`` is what live tensors and workspaces asked for, the sum of the categories; with rounding
    and unsplit tails it is ``max_memory_allocated_bytes``, which ``torch.cuda.max_memory_allocated()`` prints.
    ``reserved_bytes`` is ``torch.cuda.max_memory_reserved()``. ``device_bytes`` adds the context and other
    processes: what nvidia-smi shows.
    """

    allocated_bytes: int
    max_memory_allocated_bytes: int
    reserved_bytes: int
    device_bytes: int
    phase: str
    step: int

    def __post_init__(self) -> None:
        """Each figure holds the one before it."""
        ladder = (self.allocated_bytes, self.max_memory_allocated_bytes, self.reserved_bytes, self.device_bytes)
        if list(ladder) != sorted(ladder):
            raise ValueError(f"peak is out of order: {ladder}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseUse:
    """One phase of one step: the most and the last that was allocated, and where the bytes were at its peak."""

    step: int
    name: str
    peak_allocated_bytes: int
    end_allocated_bytes: int
    breakdown: Breakdown


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleUse:
    """Bytes that one module holds at the peak, by category; ``path`` is empty for what belongs to no module."""

    path: str
    parameters: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    activations: int = 0
    inputs_and_buffers: int = 0
    autocast_copies: int = 0
    temporaries: int = 0
    workspace: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, category.value) for category in Category)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorGroup:
    """Tensors alive at the peak that are alike: ``count`` of them, ``bytes`` together.

    ``module`` has ``*`` where the members differ only in the number of their layer; ``phase`` is where they
    were born.
    """

    bytes: int
    count: int
    dtype: str
    shape: tuple[int, ...]
    category: Category
    module: str
    op: str
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLine:
    """A phase's peak as a line: ``fixed_bytes + batch_size x per_sample_bytes``, from two small batches."""

    step: int
    name: str
    fixed_bytes: int
    per_sample_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What two small batches say of another. ``reserved_bytes`` is unknown where their steps differ in kind."""

    batch_size: int
    seq_length: int
    allocated_bytes: int
    reserved_bytes: int | None
    phase: str
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionCheck:
    """The prediction for the target beside the probe of the target itself."""

    batch_size: int
    predicted_allocated_bytes: int
    probed_allocated_bytes: int
    difference_bytes: int
    predicted_reserved_bytes: int | None
    probed_reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How memory grows with the batch, at the target's length and settings.

    ``method`` says how: ``event by event`` where the steps at the two batch sizes ``from_batches`` are the same
    sequence of events (every event's size is then a line in the batch size, and the prediction is replayed
    through the allocator), else ``phase by phase`` (each phase's peak is taken as a line). ``per_sample_bytes`` is what
    a sample takes of the tensors alive at the target's peak, which can be others than at the peak of a small batch,
    whose lines are in ``phases``; ``fixed_bytes`` is the rest of the target's peak.
    """

    method: str
    from_batches: tuple[int, int]
    per_sample_bytes: int
    fixed_bytes: int
    phases: tuple[PhaseLine, ...]
    predicted: tuple[Prediction, ...]
    largest_batch_that_fits: int | None
    check: PredictionCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class Toggle:
    """The target with one thing changed, probed. ``saves_bytes`` is of reserved memory, negative where it costs.

    ``mode`` is how both were probed: ``simulated`` or ``measured``.
    """

    change: Change
    peak: Peak
    breakdown: Breakdown
    fits: bool
    saves_bytes: int
    mode: str = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The same step measured and simulated, on the same card. ``change`` is of the target; empty for itself.

    Errors are of the simulation, in percent of what was measured: negative where it says too little. Where one of
    the two ran out of memory they are ``None``: what was measured ends where it was refused.
    """

    change: Change
    measured: Peak
    simulated: Peak
    measured_fits: bool
    simulated_fits: bool
    allocated_error_percent: float | None
    reserved_error_percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterCheck:
    """A figure of the timeline of a measured step beside the one that PyTorch or NVML counted for itself.

    ``difference_bytes`` is what the timeline does not explain.
    """

    name: str
    counted_bytes: int
    timeline_bytes: int
    difference_bytes: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Does it fit, by how much, and what is the largest part of it."""

    fits: bool
    headroom_bytes: int
    cause: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RanOutAt:
    """Where the step ran out of memory: what was asked for, what the card had left, and what PyTorch would print.

    ``event`` and the figures are those of :class:`memdoctor.records.RanOut`.
    """

    step: int
    phase: str
    module: str
    op: str
    requested_bytes: int
    free_bytes: int
    segment_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    message: str = ""
    event: int | None = None
