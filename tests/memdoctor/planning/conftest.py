"""A world whose every byte is a formula: what the planner finds in it is held to looking at everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from memdoctor.analysis import peak_of
from memdoctor.planning import Forecasts, Subject
from memdoctor.records import Completed, Device, Event, Examination, Precision, RanOut, Workload
from memdoctor.scaling import Need, Replayer

CONTEXT = 1_000
STATES = {"adamw_torch_fused": 2.0, "adamw_torch": 2.0, "adamw_bnb_8bit": 0.5, "adafactor": 0.02, "sgd": 0.0}
"""Bytes of optimizer state for each byte of parameters that are trained."""


@dataclass(slots=True)
class World:
    """``parameters`` bytes of a model that keeps ``each`` bytes of activations a token, on a card of ``limit`` bytes.

    ``refused`` are settings that the model does not allow. Everything asked for is noted in ``probed``.
    """

    new_recording: Callable[[], Any]
    limit: int
    parameters: int = 10_000
    each: int = 10
    refused: Callable[[Workload], bool] = lambda workload: False
    probed: list[Subject] = field(default_factory=list)

    @property
    def device(self) -> Device:
        """The card."""
        return Device(
            name="card", total_bytes=self.limit + CONTEXT, compute_capability="7.5", context_bytes=CONTEXT,
            context_error_bytes=10, context_source="by hand", source="by hand",
        )  # fmt: skip

    def probe(self, subjects: Sequence[Subject]) -> list[Examination | None]:
        """Examine each; what is refused is ``None``."""
        self.probed += [subject for subject in subjects if subject not in self.probed]
        return [None if self.refused(workload) else self.examine(workload) for workload, _ in subjects]

    def examine(self, workload: Workload) -> Examination:
        """Two steps, every byte by formula; reserved is what is allocated."""
        tape = self.new_recording()
        share = 0.02 if workload.lora_rank else 0.75 if workload.freeze else 1.0
        trained = int(self.parameters * share)
        tokens = workload.batch_size * workload.seq_length
        kept = int(self.each * (0.25 if workload.gradient_checkpointing else 1))
        kept = int(kept * (0.6 if workload.precision is not Precision.FP32 else 1)) or 1
        tape.phase(0, "setup")
        tape.birth(self.parameters, "parameters")
        for step in (1, 2):
            gradient = None
            for _ in range(min(workload.gradient_accumulation_steps, 2)):
                tape.phase(step, "forward")
                activations = tape.birth(tokens * kept)
                tape.phase(step, "backward")
                if gradient is None:
                    gradient = tape.birth(trained, "gradients")
                tape.death(activations)
            tape.phase(step, "optimizer")
            if step == 1 and (state := int(trained * STATES[workload.optimizer])):
                tape.birth(state, "optimizer_state")
            if workload.optimizer == "adamw_torch":
                tape.death(tape.birth(trained, "temporaries"))
            tape.phase(step, "zero_grad")
            tape.death(gradient)
        made: Examination = tape.examination(total=10**12, context=CONTEXT)
        fits = peak_of(made).reserved_bytes <= self.limit
        outcome = Completed() if fits else RanOut(requested_bytes=1, free_bytes=0, event=0)
        return replace(made, workload=workload, device=self.device, outcome=outcome)

    def replayed(self, device: Device) -> Replayer:
        """An allocator that wastes nothing."""

        def need(events: Sequence[Event], clears: Sequence[int]) -> Need:
            now = most = 0
            for event in events:
                now += event.delta_bytes
                most = max(most, now)
            return Need(most <= device.allocator_limit_bytes, lambda: most)

        return need

    def forecasts(self, target: Workload) -> Forecasts:
        """Forecasts for a target in this world."""
        return Forecasts(target, self.device, self.probe, self.replayed)


@pytest.fixture(scope="session")
def world(new_recording: Callable[[], Any]) -> Callable[..., World]:
    """Makes a world."""

    def make(limit: int, **more: Any) -> World:
        return World(new_recording, limit, **more)

    return make
