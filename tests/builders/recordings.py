"""A builder that writes examinations by hand, in program order, so that every figure can be worked out on paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from memdoctor.records import (
    Block,
    Category,
    Completed,
    Device,
    Event,
    Examination,
    Outcome,
    Phase,
    PhaseName,
    Provenance,
    RanOut,
    SegmentEvent,
    Timeline,
    Workload,
)

PROVENANCE = Provenance(
    mode="simulated", memdoctor="0.1.0", torch="2.13.0", transformers="5.24.0", python="3.11.7",
    created="2030-01-01T00:00:00+00:00", model_source="by hand", attention_kernels=("eager",), seconds=0.5,
)  # fmt: skip


class Recording:
    """Births, deaths and phases as they happen. Sizes are bytes; a tensor is ``uint8`` unless it says otherwise."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.events: list[Event] = []
        self.begins: list[tuple[int, PhaseName, int]] = []
        self.segments: list[SegmentEvent] = []

    def phase(self, step: int, name: str) -> None:
        """A phase begins, and with it ends the one before."""
        self.begins.append((step, PhaseName(name), len(self.events)))

    def birth(
        self,
        size: int,
        category: str = "activations",
        *,
        module: str = "",
        op: str = "aten.empty.default",
        dtype: str = "uint8",
        shape: tuple[int, ...] | None = None,
        allocated: int | None = None,
    ) -> int:
        """A block of ``size`` bytes is born; its number. The allocator sets exactly that aside, unless told."""
        number = len(self.blocks)
        block = Block(
            bytes=size, category=Category(category), module=module, op=op, dtype=dtype,
            shape=(size,) if shape is None else shape, allocated_bytes=size if allocated is None else allocated,
            address=4096 * number,
        )  # fmt: skip
        self.blocks.append(block)
        self.events.append(Event(number, size))
        return number

    def death(self, number: int) -> None:
        """The block dies."""
        self.events.append(Event(number, -self.blocks[number].bytes))

    def reserve(self, size: int) -> None:
        """The allocator gets a segment (or, negative, releases one) while it handles the event that comes next."""
        self.segments.append(SegmentEvent(len(self.events), size))

    def timeline(self) -> Timeline:
        """What was written. Where nothing was reserved, the first event reserves just what the run needs."""
        ends = [begin for _, _, begin in self.begins[1:]] + [len(self.events)]
        spans = zip(self.begins, ends, strict=True)
        phases = tuple(Phase(step, name, begin, end) for (step, name, begin), end in spans)
        timeline = Timeline(tuple(self.blocks), tuple(self.events), phases, tuple(self.segments))
        if self.segments:
            return timeline
        needed = SegmentEvent(0, max(timeline.memory_allocated()))
        return Timeline(timeline.blocks, timeline.events, timeline.phases, (needed,))

    def examination(
        self, *, total: int = 10_000, context: int = 1_000, outcome: Outcome | None = None, **workload: Any
    ) -> Examination:
        """The timeline on a card of ``total`` bytes, ``context`` of them taken by the CUDA context."""
        device = Device(
            name="card", total_bytes=total, compute_capability="7.5", context_bytes=context, context_error_bytes=10,
            context_source="by hand", source="by hand",
        )  # fmt: skip
        target = Workload(**{"model": "by-hand", "batch_size": 1, "seq_length": 8, **workload})
        return Examination(target, device, PROVENANCE, outcome or Completed(), self.timeline())


@pytest.fixture(scope="session")
def new_recording() -> Callable[[], Recording]:
    """Starts a recording."""
    return Recording


@pytest.fixture
def recording() -> Recording:
    """A recording just started."""
    return Recording()


@pytest.fixture
def two_steps() -> Examination:
    """Two steps of a model of two layers.

    ======  =========  =====================================  ======================
    step    phase      births (+) and deaths (-)              in use: peak, at end
    ======  =========  =====================================  ======================
    0       setup      +400 +200 parameters                   600, 600
    1       forward    +16 input, +500 +500 kept, +300 -300   1916, 1616
    1       backward   +400 -500 +200 -500                    2016, 1216
    1       optimizer  +800 +400 state                        2416, 2416
    1       zero_grad  -400 -200 -16                          2416, 1800
    2       forward    +16, +500 +500, +300 -300              3116, 2816
    2       backward   +400 -500 +200 -500                    3216, 2416
    2       optimizer  nothing                                2416, 2416
    2       zero_grad  -400 -200 -16                          2416, 1800
    ======  =========  =====================================  ======================

    The peak is 3216 bytes in the backward pass of step 2, when the gradient of 400 bytes is born.
    """
    tape = Recording()
    tape.phase(0, "setup")
    for module, elements in (("net.layer.0", 100), ("net.layer.1", 50)):
        tape.birth(4 * elements, "parameters", module=module, dtype="float32", shape=(elements,))
    for step in (1, 2):
        tape.phase(step, "forward")
        inputs = tape.birth(16, "inputs_and_buffers", dtype="int64", shape=(1, 2))
        kept = [tape.birth(500, module=f"net.layer.{n}", op="aten.gelu.default", shape=(5, 100)) for n in (0, 1)]
        tape.death(tape.birth(300, "temporaries", module="net"))
        tape.phase(step, "backward")
        gradients = []
        for module, elements in (("net.layer.0", 100), ("net.layer.1", 50)):
            gradients.append(tape.birth(4 * elements, "gradients", module=module, dtype="float32", shape=(elements,)))
            tape.death(kept.pop())
        tape.phase(step, "optimizer")
        if step == 1:
            for elements in (200, 100):
                tape.birth(4 * elements, "optimizer_state", dtype="float32", shape=(elements,))
        tape.phase(step, "zero_grad")
        for number in (*gradients, inputs):
            tape.death(number)
    return tape.examination()


@pytest.fixture
def holding(new_recording: Callable[[], Recording]) -> Callable[..., Examination]:
    """A step that holds so many bytes by category at its peak, all reserved, on a card of which 9,000 can be.

    One that does not fit ran out of memory at its first event, and went on.
    """

    def make(sizes: Mapping[str, int], *, fits: bool = True, phase: str = "forward", **more: Any) -> Examination:
        tape = new_recording()
        tape.phase(1, phase)
        for category, size in sizes.items():
            tape.birth(size, category)
        outcome = None if fits else RanOut(requested_bytes=1, free_bytes=0, event=0)
        return tape.examination(outcome=outcome, **more)

    return make
