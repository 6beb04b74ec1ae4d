"""Evidence by hand: an examination written in program order, and what else was probed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from memdoctor.records import Examination, Lever, Peak, RanOut
from memdoctor.rules import Evidence, evidence_of

CONFIG = {
    "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "vocab_size": 100,
}  # fmt: skip


@pytest.fixture
def evidence() -> Callable[..., Evidence]:
    """What follows from an examination, with ``probes`` and ``levers`` where they are given."""

    def make(examination: Examination, **more: Any) -> Evidence:
        return evidence_of(examination, more.pop("config", CONFIG), **more)

    return make


@pytest.fixture
def probed_lever() -> Callable[..., Lever]:
    """A lever that was probed and saves so many bytes, with more of its fields where they are given."""

    def make(name: str, saves: int, **more: Any) -> Lever:
        peak = Peak(
            allocated_bytes=1, max_memory_allocated_bytes=1, reserved_bytes=1, device_bytes=1, phase="forward", step=1
        )
        fields = {"change": {}, "status": "probed", "cost": "none", "sentence": "", "peak": peak, "saves_bytes": saves}
        return Lever(name=name, **{**fields, **more})

    return make


@pytest.fixture
def holding(new_recording: Callable[[], Any]) -> Callable[..., Examination]:
    """A step that holds so many bytes by category at its peak, all reserved, on a card of which 9,000 can be.

    One that does not fit ran out of memory at its first event, and went on.
    """

    def make(sizes: Mapping[str, int], *, fits: bool = True, phase: str = "forward", **more: Any) -> Examination:
        tape = new_recording()
        tape.phase(1, phase)
        for category, size in sizes.items():
            tape.birth(size, category)
        outcome = None if fits else RanOut(requested_bytes=1, free_bytes=0, event=0)
        made: Examination = tape.examination(outcome=outcome, **more)
        return made

    return make
