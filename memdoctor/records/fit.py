"""What fits: the largest batch for each length and setting of a card, or over cards, and what a wanted batch takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from memdoctor.records.advice import Plan
from memdoctor.records.conclusions import Change, Peak
from memdoctor.records.examination import Provenance
from memdoctor.records.workload import Device, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One per-device batch that was probed, and whether it fits."""

    batch_size: int
    fits: bool
    peak: Peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The largest per-device batch that was found to fit, checked by direct probes of it and of one more.

    ``largest_batch`` is ``None`` where batch 1 does not fit. ``capped``: it is the largest that is ever probed, and
    nothing was asked of one more. ``trials`` has every batch that was probed at the edge, the smallest first;
    ``predicted_batch`` is where they began. What fits is not quite monotone in the batch, since the allocator's blocks
    fall differently: a batch above ``largest_batch`` + 1 may fit again, and is not looked for.
    """

    largest_batch: int | None
    predicted_batch: int | None
    capped: bool
    trials: tuple[Trial, ...]

    def __post_init__(self) -> None:
        """The edge is what its trials say."""
        fits = {trial.batch_size: trial.fits for trial in self.trials}
        largest = self.largest_batch or 0
        if largest and fits.get(largest) is not True:
            raise ValueError(f"batch {largest} was not found to fit")
        if not self.capped and fits.get(largest + 1) is not False:
            raise ValueError(f"batch {largest + 1} was not found not to fit")

    @property
    def peak(self) -> Peak | None:
        """That of the largest batch that fits."""
        return next((trial.peak for trial in self.trials if trial.batch_size == self.largest_batch), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitCell:
    """The edge at one length with one change of the settings; ``why_not`` says why there is none."""

    change: Change
    seq_length: int
    edge: Edge | None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFit:
    """The workload with one change on one card, probed there; without a peak, ``why_not`` says why it was not."""

    change: Change
    fits: bool
    peak: Peak | None
    headroom_bytes: int | None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """One card: the workload as it is; where that does not fit, with changes too; and its largest batch there."""

    gpu: str
    total_bytes: int
    compute_capability: str
    settings: tuple[SettingFit, ...]
    edge: Edge | None

    @property
    def fits(self) -> bool:
        """Whether the workload fits as it is."""
        return any(setting.fits for setting in self.settings if not setting.change)

    @property
    def cheapest(self) -> SettingFit | None:
        """The first setting that fits, in the order of what they cost."""
        return next((setting for setting in self.settings if setting.fits), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The effective batch that was asked for, and the ways to train with it that fit, the cheapest first.

    ``fits``: it fits as it was asked for, and no plan is made. ``smallest`` is the smallest footprint that was probed,
    where nothing fits.
    """

    effective_batch: int
    batch_size: int
    gradient_accumulation_steps: int
    seq_length: int
    fits: bool
    peak: Peak
    plan: tuple[Plan, ...] = ()
    smallest: Plan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What fits. Either ``cells`` (lengths and settings on ``device``) or ``cards`` (one workload over cards).

    ``smallest_card`` is the smallest of the cards looked at that takes the workload as it is, and
    ``smallest_card_changed`` the smallest that takes it with one of the changes probed. All is simulated.
    """

    workload: Workload
    device: Device
    provenance: Provenance
    cells: tuple[FitCell, ...] = ()
    cards: tuple[CardRow, ...] = ()
    wanted: Wanted | None = None
    smallest_card: str | None = None
    smallest_card_changed: str | None = None
    probes: int = 0
    assumed: tuple[str, ...] = field(default=())
