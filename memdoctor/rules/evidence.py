"""All that rules, levers' explanations, the checklist and claims may look at: pure data about one target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memdoctor.analysis import breakdown_of, peak_of, phases_of, ran_out_at, tensors_of
from memdoctor.records import (
    Breakdown,
    Category,
    Change,
    Completed,
    Device,
    Examination,
    Lever,
    Peak,
    PhaseUse,
    RanOutAt,
    Scaling,
    TensorGroup,
    Workload,
)

Probe = tuple[Change, Examination]
"""A change of the target, and the examination of the target with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The target's examination with what follows from it, and the target with changes.

    ``config`` has the facts of the model's config.json (or only its factory's name); ``probes`` are the target with
    changes, each probed in the same way as the target. ``most_held`` is the most that each category ever held, whether
    or not at the peak. ``runs_allocated_bytes`` is what PyTorch had allocated after each of several runs in one
    process, where somebody has watched that; no probe does.
    """

    examination: Examination
    config: Mapping[str, Any]
    peak: Peak
    breakdown: Breakdown
    phases: tuple[PhaseUse, ...]
    tensors: tuple[TensorGroup, ...]
    most_held: Mapping[Category, int]
    ran_out: RanOutAt | None = None
    scaling: Scaling | None = None
    levers: tuple[Lever, ...] = ()
    probes: tuple[Probe, ...] = ()
    runs_allocated_bytes: tuple[int, ...] = field(default=())

    @property
    def workload(self) -> Workload:
        """What is trained; its attention is the one that was used."""
        return self.examination.workload

    @property
    def device(self) -> Device:
        """The card."""
        return self.examination.device

    @property
    def fits(self) -> bool:
        """Whether the target fits its card."""
        return isinstance(self.examination.outcome, Completed)

    @property
    def limit_bytes(self) -> int:
        """What PyTorch's allocator can reserve on the card."""
        return self.device.allocator_limit_bytes

    @property
    def static_bytes(self) -> int:
        """Parameters, gradients and optimizer state at their most: what no batch size and no length changes."""
        return sum(self.most_held[kind] for kind in STATIC)

    def lever(self, name: str) -> Lever | None:
        """The lever of this name, where it was looked at."""
        return next((lever for lever in self.levers if lever.name == name), None)

    def changed(self, change: Change) -> Examination | None:
        """The target with exactly this change, where that was probed."""
        return next((examination for made, examination in self.probes if made == change), None)

    def phase_peak(self, *names: str) -> int:
        """The most that was allocated in any phase of these names, over all steps."""
        return max((use.peak_allocated_bytes for use in self.phases if use.name in names), default=0)


STATIC = (Category.PARAMETERS, Category.GRADIENTS, Category.OPTIMIZER_STATE)


def evidence_of(
    examination: Examination,
    config: Mapping[str, Any],
    *,
    probes: Sequence[Probe] = (),
    levers: Sequence[Lever] = (),
    scaling: Scaling | None = None,
) -> Evidence:
    """The evidence that one examination gives by itself, with what else was probed."""
    return Evidence(
        examination=examination,
        config=config,
        peak=peak_of(examination),
        breakdown=breakdown_of(examination),
        phases=phases_of(examination),
        tensors=tensors_of(examination),
        most_held=_most_held(examination),
        ran_out=ran_out_at(examination),
        scaling=scaling,
        levers=tuple(levers),
        probes=tuple(probes),
    )


def _most_held(examination: Examination) -> dict[Category, int]:
    timeline = examination.timeline
    now = dict.fromkeys(Category, 0)
    most = dict(now)
    for event in timeline.events:
        category = timeline.blocks[event.block].category
        now[category] += event.delta_bytes
        most[category] = max(most[category], now[category])
    return most
