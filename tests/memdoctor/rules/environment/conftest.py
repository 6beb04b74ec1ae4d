"""Runs by hand on cards that are not theirs alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import Counters
from memdoctor.rules import Evidence


@pytest.fixture
def on_card(recording: Any, evidence: Callable[..., Evidence]) -> Callable[..., Evidence]:
    """A run that reserves ``reserves`` bytes; the rest are fields of the device, and ``outcome``.

    ``counters``: what was counted, where it was measured.
    """

    def make(reserves: int, *, counters: Counters | None = None, measured: bool = False, **device: Any) -> Evidence:
        recording.phase(1, "forward")
        recording.birth(reserves)
        outcome = {"outcome": device.pop("outcome")} if "outcome" in device else {}
        examination = recording.examination(**outcome)
        mode = "measured" if counters or measured else "simulated"
        changed = replace(
            examination,
            device=replace(examination.device, **device),
            provenance=replace(examination.provenance, mode=mode),
            counters=counters,
        )
        return evidence(changed)

    return make


@pytest.fixture
def counted() -> Callable[..., Counters]:
    """What PyTorch and NVML counted; PyTorch's peaks are what it holds at the end."""

    def make(reserved: int, **told: int | None) -> Counters:
        return Counters(
            max_memory_allocated_bytes=reserved, max_memory_reserved_bytes=reserved, memory_allocated_bytes=reserved,
            memory_reserved_bytes=reserved, **told,
        )  # fmt: skip

    return make
