"""A diagnosis whose timeline the simulated allocator made."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.doctor import conclude
from memdoctor.probes.simulated.allocator.replay import replay_on_the_smallest
from memdoctor.records import Diagnosis, SegmentEvent


@pytest.fixture(scope="package")
def two_real_steps(new_recording: Callable[[], Any]) -> Diagnosis:
    """Two steps of made-up tensors, where the allocator put them on the smallest card that takes them."""
    choice = random.Random(7)
    tape = new_recording()
    tape.phase(0, "setup")
    for layer in range(6):
        tape.birth(choice.randint(1, 4 << 20), "parameters", module=f"net.layer.{layer}")
    for step in (1, 2):
        tape.phase(step, "forward")
        kept = []
        for layer in range(6):
            kept.append(tape.birth(choice.randint(1, 12 << 20), module=f"net.layer.{layer}"))
            tape.death(tape.birth(choice.randint(1, 30 << 20), "temporaries"))
        tape.phase(step, "backward")
        gradients = []
        while kept:
            gradients.append(tape.birth(choice.randint(1, 4 << 20), "gradients"))
            tape.death(kept.pop())
        tape.phase(step, "zero_grad")
        for gradient in gradients:
            tape.death(gradient)
    made = tape.examination(total=1 << 30)
    done = replay_on_the_smallest(made.timeline.events)
    before, given = 0, {}
    for event, address, after in zip(done.events, done.addresses, done.allocated, strict=True):
        if event.delta_bytes > 0:
            given[event.block] = (address, after - before)
        before = after
    blocks = tuple(
        replace(block, address=given[number][0], allocated_bytes=given[number][1])
        for number, block in enumerate(made.timeline.blocks)
    )
    segments = tuple(SegmentEvent(item.event, item.delta_bytes) for item in done.segment_events)
    return conclude(replace(made, timeline=replace(made.timeline, blocks=blocks, segments=segments)))
