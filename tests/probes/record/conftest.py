"""Recordings by hand, of a card that is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
    SegmentEvent,
    Timeline,
    Workload,
)

MIB = 1 << 20
CARD = Device(
    name="NVIDIA H200", total_bytes=1 << 37, compute_capability="9.0", context_bytes=500 * MIB, context_error_bytes=0,
    context_source="measured by NVML", source="measured",
)  # fmt: skip
MADE = Provenance(
    mode="measured", memdoctor="0.1.0", torch="2.11.0+cu130", transformers="5.17.0", python="3.12.1", created="today",
    model_source="by hand", attention_kernels=("eager",), seconds=2.0,
)  # fmt: skip


def examination(
    weights: int = 1000,
    kept: int = 600,
    passing: int = 100,
    reserved: int = 2 * MIB,
    *,
    outcome: Outcome | None = None,
    device: Device = CARD,
    workload: Workload | None = None,
    **made: Any,
) -> Examination:
    """Weights in setup, something kept in forward, something passing in backward; in sizes that round to 512."""

    def block(size: int, category: Category, address: int) -> Block:
        return Block(
            bytes=size, category=category, module="m", op="aten.empty", dtype="uint8", shape=(size,),
            allocated_bytes=-(-size // 512) * 512, address=address,
        )  # fmt: skip

    blocks = (
        block(weights, Category.PARAMETERS, 0), block(kept, Category.ACTIVATIONS, 4096),
        block(passing, Category.TEMPORARIES, 8192),
    )  # fmt: skip
    timeline = Timeline(
        blocks=blocks,
        events=(Event(0, weights), Event(1, kept), Event(2, passing), Event(2, -passing), Event(1, -kept)),
        phases=(
            Phase(0, PhaseName.SETUP, 0, 1), Phase(1, PhaseName.FORWARD, 1, 2), Phase(1, PhaseName.BACKWARD, 2, 5),
        ),
        segments=(SegmentEvent(0, reserved),),
    )  # fmt: skip
    asked = workload or Workload(model="bert-base-uncased", batch_size=1, seq_length=128)
    return Examination(asked, device, replace(MADE, **made), outcome or Completed(), timeline)


@pytest.fixture(scope="session")
def recording() -> Callable[..., Examination]:
    """``recording(weights, kept, passing, reserved, **more)``: an examination as a GPU would give it."""
    return examination
