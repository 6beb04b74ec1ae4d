"""What a verification of gradient accumulation found. Field names are the keys of the JSON report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from memdoctor.records.examination import Provenance
from memdoctor.records.workload import Device, Workload


class Status(StrEnum):
    """What became of a check; one that is not applicable has nothing to compare, and its sentence says why."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationPlan:
    """What is to be verified beside the workload.

    ``loop`` is ``trainer``, ``custom`` (memdoctor's own loop by hand) or ``module:function``; ``steps`` are optimizer
    steps of the check that the loss falls; ``learning_rate`` is that of these steps.
    """

    loop: str = "trainer"
    learning_rate: float = 5e-5
    steps: int = 20

    def __post_init__(self) -> None:
        """There is something to learn, and a first and a last part of the curve."""
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate is {self.learning_rate}, but must be a positive number")
        if self.steps < 2:
            raise ValueError(f"steps is {self.steps}, but must be at least 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was compared.

    ``value`` is held to ``tolerance`` as ``rule`` says (both ``None`` where there was nothing to compare, and ``value``
    where it is no number); ``tolerance_reason`` says where the tolerance is from. ``sentence`` has the arithmetic;
    ``cause``, where it failed, what is most likely wrong and what to do.
    """

    id: str
    title: str
    status: Status
    value: float | None
    tolerance: float | None
    rule: str
    tolerance_reason: str
    sentence: str
    cause: str = ""
    evidence: Mapping[str, int | float | str | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatedPeak:
    """The peak of one phase with accumulation, made of the micro-batch's own peak and what is added to it.

    ``micro_batch_peak_bytes`` is that of a step of one micro-batch. ``persistent_gradient_bytes`` are the finished
    gradients at the accumulated peak; those that the micro-batch's peak held too are ``in_both_bytes``.
    ``other_input_bytes`` are inputs of other micro-batches that wait or are over. ``unexplained_bytes`` is the rest.
    """

    phase: str
    micro_batch_peak_bytes: int
    persistent_gradient_bytes: int
    in_both_bytes: int
    other_input_bytes: int
    unexplained_bytes: int
    accumulated_peak_bytes: int

    def __post_init__(self) -> None:
        """The parts sum to the peak."""
        added = self.persistent_gradient_bytes - self.in_both_bytes + self.other_input_bytes + self.unexplained_bytes
        if self.micro_batch_peak_bytes + added != self.accumulated_peak_bytes:
            raise ValueError(f"the parts of the peak in {self.phase} do not sum to it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The checks of one loop. ``losses`` are those of each optimizer step, ``None`` where one was no number."""

    workload: Workload
    device: Device
    provenance: Provenance
    plan: VerificationPlan
    checks: tuple[Check, ...]
    peaks: tuple[AccumulatedPeak, ...]
    losses: tuple[float | None, ...]
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Something was checked, and each thing once."""
        names = [check.id for check in self.checks]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"the checks are {', '.join(names) or 'none'}")

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status is Status.FAILED)

    @property
    def passed(self) -> bool:
        """No check failed, and at least one passed."""
        return not self.failed and any(check.status is Status.PASSED for check in self.checks)
