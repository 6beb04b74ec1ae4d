"""From two footprints, of one micro-batch a step and of several, to what accumulation adds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from memdoctor.probes.verification.memory import Footprint
from memdoctor.records import AccumulatedPeak, PhaseName

STEP = 2  # the first makes the optimizer's state
PHASES = (PhaseName.FORWARD, PhaseName.BACKWARD, PhaseName.OPTIMIZER)


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes in use at one instant: all, finished gradients, and inputs of other micro-batches than the one at work."""

    all: int
    gradients: int
    other_inputs: int

    @property
    def own(self) -> int:
        """What the micro-batch at work needs for itself, with what is there anyhow: parameters, optimizer state."""
        return self.all - self.gradients - self.other_inputs


def accumulated_peaks(single: Footprint, several: Footprint) -> tuple[AccumulatedPeak, ...]:
    """The second step, phase by phase.

    A micro-batch needs the same beside finished gradients whether others came before it or not: so its need in the
    one run, the finished gradients of the other and the inputs that wait there are the peak, and the rest is told.
    """
    one, many = held_by_phase(single), held_by_phase(several)
    return tuple(_peak(phase.value, one[phase], many[phase]) for phase in PHASES if one.get(phase) and many.get(phase))


def _peak(phase: str, one: list[Held], many: list[Held]) -> AccumulatedPeak:
    own_peak = max(held.all - held.other_inputs for held in one)
    need = max(held.own for held in one)
    at = max(many, key=lambda held: held.all)
    return AccumulatedPeak(
        phase=phase,
        micro_batch_peak_bytes=own_peak,
        persistent_gradient_bytes=at.gradients,
        in_both_bytes=own_peak - need,
        other_input_bytes=at.other_inputs,
        unexplained_bytes=at.all - at.gradients - at.other_inputs - need,
        accumulated_peak_bytes=at.all,
    )


def growth_bytes(several: Footprint) -> int:
    """Bytes that each micro-batch from the second on leaves behind beside gradients and inputs; 0 where all do."""
    held = list(_held(several))
    steps = [phase for phase in several.phases if phase.step == STEP]
    begins = [begin for begin in several.begins if steps and steps[0].begin <= begin <= steps[-1].end]
    starts = [held[max(begin - 1, 0)].own for begin in begins[1:]]
    return (starts[-1] - starts[0]) // (len(starts) - 1) if len(starts) > 1 else 0


def held_by_phase(footprint: Footprint) -> Mapping[PhaseName, list[Held]]:
    """What is held after each event of the second step, and where its phases begin."""
    held = list(_held(footprint))
    found: dict[PhaseName, list[Held]] = {}
    for phase in footprint.phases:
        if phase.step == STEP:
            found.setdefault(phase.name, []).extend(held[max(phase.begin - 1, 0) : phase.end])
    return found


def _held(footprint: Footprint) -> Iterator[Held]:
    """After each event, with the micro-batch at work from its forward to the next one's."""
    from_then: dict[int, list[int]] = {}
    for block, position in footprint.finished.items():
        from_then.setdefault(position, []).append(block)
    spans = iter([*pairwise([*footprint.begins, len(footprint.events) + 1])])
    _, end = next(spans, (0, 0))
    working = 0
    alive: dict[int, int] = {}
    finished: set[int] = set()
    total = gradients = 0
    inputs: dict[int, int] = {}  # bytes of those alive
    for position, event in enumerate(footprint.events):
        while position >= end and (following := next(spans, None)):
            end, working = following[1], working + 1
        for block in from_then.get(position, ()):
            if block in alive and block not in finished:
                finished.add(block)
                gradients += alive[block]
        total += event.delta_bytes
        if event.delta_bytes > 0:
            alive[event.block] = event.delta_bytes
            if footprint.finished.get(event.block) == position and event.block not in finished:
                finished.add(event.block)
                gradients += event.delta_bytes
        else:
            alive.pop(event.block, None)
            if event.block in finished:
                finished.discard(event.block)
                gradients += event.delta_bytes
        if event.block in footprint.inputs:
            inputs[event.block] = inputs.pop(event.block, 0) + event.delta_bytes
        others = sum(size for block, size in inputs.items() if working not in footprint.inputs[block])
        yield Held(total, gradients, others)
