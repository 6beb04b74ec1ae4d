"""What a step has to compute and to move, and how fast a GPU does either: what an estimate of its time is made of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from memdoctor.records.timeline import PhaseName


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseWork:
    """The work of one phase of one step, counted operator by operator.

    Products are matrix products, convolutions and attention. ``fp32_flops`` and ``half_flops`` are their
    floating-point operations (a multiply-add is two) by the type of their operands, ``product_bytes`` what they read
    and write; ``other_bytes`` is what all other kernels read and write, ``kernels`` how many are launched.
    """

    step: int
    name: PhaseName
    fp32_flops: int = 0
    half_flops: int = 0
    product_bytes: int = 0
    other_bytes: int = 0
    kernels: int = 0

    def __post_init__(self) -> None:
        """Nothing counts to less than 0."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{item.name} is negative: {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a GPU's data sheet promises: dense, without sparsity, at boost clock; TFLOP and GB a second.

    ``fp16_tflops`` and ``bf16_tflops`` are those of tensor cores that add up in fp32, where there are any;
    ``None``: the GPU does not compute in that type any faster than in fp32 (or not at all).
    """

    fp32_tflops: float
    fp16_tflops: float | None
    bf16_tflops: float | None
    bandwidth_gb_s: float
    source: str

    def __post_init__(self) -> None:
        """Rates are positive."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, float) and value <= 0:
                raise ValueError(f"{item.name} is {value}, but must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one steady optimizer step, with the band in which they lie; what was measured has none."""

    seconds: float
    low_seconds: float
    high_seconds: float
    kind: Literal["estimate", "measured"]

    def __post_init__(self) -> None:
        """The band is around the figure."""
        if not 0 <= self.low_seconds <= self.seconds <= self.high_seconds:
            raise ValueError(f"{self.seconds} s is not between {self.low_seconds} and {self.high_seconds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as long one step takes as another, with the band in which that lies."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        """The band is around the figure."""
        if not 0 <= self.low <= self.value <= self.high:
            raise ValueError(f"{self.value} is not between {self.low} and {self.high}")
