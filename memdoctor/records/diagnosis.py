"""The diagnosis: all that is concluded, and the only thing that a report sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from memdoctor.records.advice import ChecklistStep, Claim, Decision, Finding, Lever, NotChecked, Plan, Smallest
from memdoctor.records.breakdown import Breakdown
from memdoctor.records.conclusions import (
    Comparison,
    CounterCheck,
    ModuleUse,
    Peak,
    PhaseUse,
    Prediction,
    RanOutAt,
    Scaling,
    TensorGroup,
    Toggle,
    Verdict,
)
from memdoctor.records.examination import Provenance
from memdoctor.records.timeline import Timeline
from memdoctor.records.workload import Device, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One budget of the configuration, checked."""

    name: str
    metric: str
    limit_bytes: int
    value_bytes: int
    status: Literal["kept", "exceeded", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All of it; the only thing that a report sees. ``assumed`` names the settings nobody asked for.

    ``timeline`` is that of the target's own probe, ``None`` in files of memdoctor 0.1; ``repeated_micro_steps`` of each
    step are not in it, as in the examination. ``lengths`` are predictions for other lengths, at the settings of the
    target, whose own length is in ``scaling``.
    """

    workload: Workload
    device: Device
    provenance: Provenance
    peak: Peak
    breakdown: Breakdown
    verdict: Verdict
    ran_out: RanOutAt | None = None
    phases: tuple[PhaseUse, ...]
    modules: tuple[ModuleUse, ...]
    tensors: tuple[TensorGroup, ...]
    scaling: Scaling | None = None
    toggles: tuple[Toggle, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    counters: tuple[CounterCheck, ...] = ()
    findings: tuple[Finding, ...] = ()
    plan: tuple[Plan, ...] = ()
    budgets: tuple[Budget, ...] = ()
    levers: tuple[Lever, ...] = ()
    checklist: tuple[ChecklistStep, ...] = ()
    decisions: tuple[Decision, ...] = ()
    claims: tuple[Claim, ...] = ()
    checks_passed: tuple[str, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    smallest: Smallest | None = None
    probes: int = 0
    assumed: tuple[str, ...] = field(default=())
    lengths: tuple[Prediction, ...] = ()
    timeline: Timeline | None = None
    repeated_micro_steps: int = 0

    @property
    def fits(self) -> bool:
        """The verdict in one word."""
        return self.verdict.fits

    def __post_init__(self) -> None:
        """The parts sum to the card, to the peak, and the verdict agrees with what is free."""
        parts = self.breakdown
        if parts.device + parts.free != self.device.total_bytes:
            raise ValueError(f"the parts sum to {parts.device + parts.free} B, not {self.device.total_bytes} B")
        if (parts.allocated, parts.reserved) != (self.peak.allocated_bytes, self.peak.reserved_bytes):
            raise ValueError("the breakdown is not that of the peak")
        if self.verdict.headroom_bytes != parts.free:
            raise ValueError("the verdict's headroom is not what is free")
