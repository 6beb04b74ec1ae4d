"""What follows from the evidence: findings, levers and their effect, the checklist, claims, and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memdoctor.records.conclusions import Change, Peak

Severity = Literal["info", "warning", "error"]
Numerics = Literal["same", "changed"]
Cost = Literal["none", "time", "numerics", "task"]
"""What a change costs at most, in the order of the checklist: nothing, time, the numbers, or what is trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that found its pattern: the sentence with its arithmetic, the evidence, and what to do.

    ``at_stake_bytes`` is what the pattern holds of the card at the peak, as far as it is known: findings are ranked by
    severity, then by it.
    """

    id: str
    severity: Severity
    title: str
    detail: str
    evidence: Mapping[str, int | float | str | bool]
    remedies: tuple[str, ...]
    at_stake_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChecked:
    """A rule that could not be checked, and which evidence is missing for it. This is no pass."""

    id: str
    title: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """One thing that people change to save memory, and what it does here.

    ``status`` is ``probed``, ``in use`` (the target has it already, and ``change`` lets go of it) or ``not probed``.
    ``peak``, ``fits`` and ``step_time`` are those of the target with the change, the time for as many samples as the
    target's step has, relative to it (``time_kind``: estimate or measured);
    all else is what having the lever does: ``saves_bytes`` of reserved memory, and most in ``phase``, whose peak goes
    from ``phase_before_bytes`` to ``phase_after_bytes`` allocated. ``sentence`` says so, or why it does nothing.
    """

    name: str
    change: Change
    status: Literal["probed", "in use", "not probed"]
    cost: Cost
    sentence: str
    peak: Peak | None = None
    fits: bool | None = None
    saves_bytes: int | None = None
    phase: str = ""
    phase_before_bytes: int | None = None
    phase_after_bytes: int | None = None
    step_time: float | None = None
    time_kind: str = ""
    mode: str = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistStep:
    """One step of the fallback checklist: what was asked, what was probed for it, and what that showed.

    ``cause`` marks the step at which the cause was found. A step that was not made has no ``probed``, and ``showed``
    says why.
    """

    id: str
    question: str
    probed: tuple[Change, ...]
    showed: str
    made: bool = True
    cause: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One branching of the decision flow, the branch that was taken, and why."""

    question: str
    answer: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A belief in circulation beside what was probed for this workload."""

    id: str
    claim: str
    verdict: Literal["confirmed", "refuted", "not probed"]
    showed: str
    evidence: Mapping[str, int | float | str | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One entry of the plan: a change that was itself probed, with the peak it was found to have.

    ``cost`` is the highest of its parts. ``step_time`` is the time of an optimizer step relative to that of the
    target, between ``step_time_low`` and ``step_time_high``; ``time_kind`` says whether it is an estimate or measured.
    ``patch`` has the lines to paste, by language.
    """

    change: Change
    why: str
    peak: Peak
    fits: bool
    saves_bytes: int
    time_cost: str
    numerics: Numerics
    patch: Mapping[str, str]
    cost: Cost = "none"
    step_time: float | None = None
    step_time_low: float | None = None
    step_time_high: float | None = None
    time_kind: str = ""
    mode: str = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFit:
    """Whether a workload fits another card, probed there."""

    gpu: str
    total_bytes: int
    peak: Peak
    fits: bool
    headroom_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Smallest:
    """When nothing fits: the smallest footprint that was found, and the smallest cards that would do.

    ``card_as_is`` is the smallest card of the catalogue that takes the target unchanged, ``card`` the smallest that
    takes the smallest footprint; ``None`` where none does.
    """

    change: Change
    peak: Peak
    card: CardFit | None
    card_as_is: CardFit | None
