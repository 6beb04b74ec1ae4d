"""Evidence by hand: an examination written in program order, and what else was probed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import Examination, Lever, Peak
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
