"""Two diagnoses side by side: what the second holds more than the first, and what else differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memdoctor.records.breakdown import Breakdown
from memdoctor.records.conclusions import Peak
from memdoctor.records.examination import Provenance
from memdoctor.records.timeline import Category
from memdoctor.records.workload import Device, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two; ``name`` is that of its file. ``cut_short``: measured up to where memory ran out, no further."""

    name: str
    workload: Workload
    device: Device
    provenance: Provenance
    peak: Peak
    breakdown: Breakdown
    fits: bool
    headroom_bytes: int
    cut_short: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting that is not the same: a field of the workload or the device, or of the environment (provenance)."""

    of: Literal["environment", "workload", "device"]
    name: str
    a: str | int | float | bool | tuple[str, ...] | None
    b: str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One figure of both; ``delta_bytes`` is what B has more than A, negative where it has less."""

    name: str
    a_bytes: int
    b_bytes: int
    delta_bytes: int

    def __post_init__(self) -> None:
        """It adds up."""
        if self.b_bytes - self.a_bytes != self.delta_bytes:
            raise ValueError(f"{self.name}: {self.b_bytes} - {self.a_bytes} is not {self.delta_bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseGrowth:
    """The allocated peak of one phase; ``None`` where a side does not have that phase.

    A phase comes ``occurrence`` times in its step, from 1 on: forward and backward come once a micro-batch.
    """

    step: int
    name: str
    occurrence: int
    a_bytes: int | None
    b_bytes: int | None
    delta_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleGrowth:
    """What one module holds at the two peaks, and the differences by category; those that are 0 are left out."""

    path: str
    a_bytes: int
    b_bytes: int
    delta_bytes: int
    by_category: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """Tensors that are alike, on one side: ``count`` of them, ``bytes`` together."""

    dtype: str
    shape: tuple[int, ...]
    count: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorGrowth:
    """Tensors that one operator left in one module on the two sides; ``None`` where one has none.

    Where shape or type are not the same, they are taken for the same tensors in another size.
    """

    category: Category
    module: str
    op: str
    a: Tensors | None
    b: Tensors | None
    delta_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """B beside A, at their peaks; every difference is of B less A.

    ``sentence`` is the verdict, ``cautions`` say what stands in the way of it, differing environments first.
    ``figures`` are allocated, max_memory_allocated, reserved, device and headroom; ``parts`` the twelve of the
    breakdown, in its order. Phases, modules and tensors come with the largest difference first; modules and tensors
    that are the same are left out.
    """

    a: Side
    b: Side
    sentence: str
    cautions: tuple[str, ...]
    settings: tuple[Setting, ...]
    figures: tuple[Growth, ...]
    parts: tuple[Growth, ...]
    phases: tuple[PhaseGrowth, ...]
    modules: tuple[ModuleGrowth, ...]
    tensors: tuple[TensorGrowth, ...]

    def __post_init__(self) -> None:
        """The parts sum to what the cards, and those that PyTorch holds to what the peaks differ by."""
        deltas = {part.name: part.delta_bytes for part in self.parts}
        if sum(deltas.values()) != self.b.device.total_bytes - self.a.device.total_bytes:
            raise ValueError("the differences of the parts do not sum to that of the cards")
        allocated = sum(deltas.get(category.value, 0) for category in Category)
        if allocated != self.figure("allocated").delta_bytes:
            raise ValueError("the differences of the categories do not sum to that of the peaks")

    def figure(self, name: str) -> Growth:
        """The figure of this name."""
        return next(figure for figure in self.figures if figure.name == name)

    def settings_of(self, of: Literal["environment", "workload", "device"]) -> tuple[Setting, ...]:
        """What differs in one of the three."""
        return tuple(setting for setting in self.settings if setting.of == of)

    @property
    def same_memory(self) -> bool:
        """Not a byte differs: in no part, phase, module and tensor."""
        deltas = [growth.delta_bytes for growth in (*self.figures, *self.parts)]
        deltas += [-1 if phase.delta_bytes is None else phase.delta_bytes for phase in self.phases]
        return not (any(deltas) or self.modules or self.tensors)

    @property
    def same(self) -> bool:
        """Neither memory nor any setting differs."""
        return self.same_memory and not self.settings
