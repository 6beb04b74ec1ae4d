"""What a setting would take, from few probes: phases compose, and each is a line in the batch size.

A structure (what is pulled besides the batch) is probed with two micro-batches of 2 and of 3 samples; forward, backward
and the rest at any batch follow from these, event by event where their steps are aligned. A smaller optimizer changes
the state that every later phase carries and the optimizer phase, and nothing else: both are read off one probe of it.
Settings of the allocator change nothing that is allocated: these stand on the probes without them.
Forecasts only choose what is probed next. What is promised is always a probe's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from memdoctor.analysis import phases_of
from memdoctor.matrix import ALLOC_CONF, apply_to
from memdoctor.planning.settings import SMALLER_OPTIMIZERS, Setting
from memdoctor.records import Category, Change, Completed, Device, Examination, PhaseName, Workload
from memdoctor.scaling import Model, Pair, Replayer, model_of

Subject = tuple[Workload, Device]
Prober = Callable[[Sequence[Subject]], Sequence[Examination | None]]
"""Probes each workload on its card, once in a session; ``None`` for what the model or the libraries do not allow."""

SAMPLES = (2, 3)  # batch 1 is different in kind: with one row nothing is broadcast
WHAT_IS_TRAINED = ("freeze", "lora_rank")  # decides how much optimizer state there is
MICRO_BATCHES = 2  # gradients persist from the second one on; more add their inputs only


@dataclass(frozen=True, slots=True)
class Expected:
    """A setting's forecast: the most it allocates, and whether it fits (``None``: only a probe can say)."""

    allocated_bytes: int
    fits: bool | None


@dataclass(frozen=True, slots=True)
class Basis:
    """What a forecast of a ``batch`` stands on.

    ``probes`` are the setting's own with its usual optimizer, or two of small batches; ``optimizers`` the usual one and
    the smaller that takes its place, on the same parameters; none where none does.
    """

    probes: tuple[Examination, ...]
    optimizers: tuple[Examination, ...]
    batch: int

    @property
    def allocated_bytes(self) -> int:
        """The most that the setting allocates."""
        peaks = self._peaks()
        if not self.optimizers:
            return max(size for _, _, size in peaks)
        usual, smaller = self.optimizers
        less = _state(usual) - _state(smaller)  # state is born in the first optimizer phase, and stays
        others = [
            size - (less if step > 1 or name in _AFTER_THE_OPTIMIZER else 0)
            for step, name, size in peaks
            if name != PhaseName.OPTIMIZER
        ]
        optimizer = [use.peak_allocated_bytes for use in phases_of(smaller) if use.name == PhaseName.OPTIMIZER]
        return max(*others, *optimizer)

    def _peaks(self) -> list[_PhasePeak]:
        if len(self.probes) == 1:
            return [(use.step, use.name, use.peak_allocated_bytes) for use in phases_of(self.probes[0])]
        lines = Pair(*self.probes).phase_lines()
        return [(line.step, line.name, line.fixed_bytes + self.batch * line.per_sample_bytes) for line in lines]


_AFTER_THE_OPTIMIZER = (PhaseName.ZERO_GRAD, PhaseName.EVALUATION)
_PhasePeak = tuple[int, str, int]  # step, name, bytes allocated


@dataclass(slots=True)
class Forecasts:
    """Asks for the probes that forecasts stand on, and makes them. ``replayed`` replays on a card."""

    target: Workload
    device: Device
    probe: Prober
    replayed: Callable[[Device], Replayer]
    _models: dict[tuple[Workload, Workload, Device], Model] = field(default_factory=dict)

    @property
    def limit_bytes(self) -> int:
        """What PyTorch's allocator can reserve on the card."""
        return self.device.allocator_limit_bytes

    def prepare(self, settings: Iterable[Setting]) -> None:
        """Probe all that forecasts of these settings need, at once."""
        needed: dict[Subject, None] = {}
        for setting in settings:
            structure, optimizer = _without_optimizer(setting.change)
            needed |= dict.fromkeys(self._stands_on(structure, setting))
            if optimizer is not None:
                needed |= dict.fromkeys(self._optimizers(structure, optimizer))
        self.probe(list(needed))

    def basis(self, setting: Setting) -> Basis | None:
        """What is known of a setting before it is probed; ``None`` where what it stands on could not be."""
        structure, optimizer = _without_optimizer(setting.change)
        probes = self.probe(self._stands_on(structure, setting))
        optimizers = self.probe(self._optimizers(structure, optimizer)) if optimizer is not None else ()
        known = tuple(probe for probe in probes if probe is not None)
        swapped = tuple(probe for probe in optimizers if probe is not None)
        complete = len(known) == len(probes) and len(swapped) == len(optimizers)
        return Basis(known, swapped, setting.batch) if complete else None

    def expect(self, setting: Setting) -> Expected | None:
        """The forecast; ``None`` where what it stands on could not be probed."""
        basis = self.basis(setting)
        if basis is None:
            return None
        allocated = basis.allocated_bytes
        if allocated > self.limit_bytes:
            return Expected(allocated, False)
        return Expected(allocated, None if basis.optimizers else self._fits(basis.probes, setting))

    def _fits(self, probes: Sequence[Examination], setting: Setting) -> bool | None:
        if len(probes) == 1:
            return None if ALLOC_CONF in setting.change else isinstance(probes[0].outcome, Completed)
        small, larger = probes
        _, device = apply_to(self.target, self.device, setting.change)
        key = (small.workload, larger.workload, device)
        if key not in self._models:
            self._models[key] = model_of(Pair(small, larger), larger, self.replayed(device))
        return self._models[key].fits(setting.batch)

    def _stands_on(self, structure: Change, setting: Setting) -> list[Subject]:
        """With the batch as it is: the probe itself. Else the two small batches."""
        if not _is_split(setting, self.target):
            return [self._subject(structure)]
        workload, device = self._subject(structure)
        return [
            (replace(workload, batch_size=samples, gradient_accumulation_steps=MICRO_BATCHES), device)
            for samples in SAMPLES
        ]

    def _optimizers(self, structure: Change, optimizer: str) -> list[Subject]:
        """The target with its own optimizer and with the smaller one, the same parts of it trained."""
        trained = {name: value for name, value in structure.items() if name in WHAT_IS_TRAINED}
        return [self._subject(trained), self._subject({**trained, "optimizer": optimizer})]

    def _subject(self, change: Change) -> Subject:
        return apply_to(self.target, self.device, change)


def _is_split(setting: Setting, target: Workload) -> bool:
    return setting.batch != target.batch_size


def _without_optimizer(change: Change) -> tuple[Change, str | None]:
    """The structure without its smaller optimizer, split and allocator, and the name of that optimizer."""
    apart = ("batch_size", "gradient_accumulation_steps", ALLOC_CONF)
    structure = {name: value for name, value in change.items() if name not in apart}
    optimizer = str(structure.get("optimizer", ""))
    if optimizer not in SMALLER_OPTIMIZERS:
        return structure, None
    del structure["optimizer"]
    return structure, optimizer


def _state(examination: Examination) -> int:
    """Bytes of optimizer state after the first step."""
    blocks = examination.timeline.blocks
    return sum(block.bytes for block in blocks if block.category is Category.OPTIMIZER_STATE)
