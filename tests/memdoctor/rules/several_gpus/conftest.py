"""Steps of one GPU by hand, whose workload says that several share the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import Examination


@pytest.fixture
def shared_step(recording: Any) -> Callable[..., Examination]:
    """``trained`` fp32 parameters with gradients and Adam's state, all there at the peak beside ``activations``."""

    def make(strategy: str, gpus: int = 4, *, trained: int = 100, activations: int = 1, **more: Any) -> Examination:
        recording.phase(1, "forward")
        for category in ("parameters", "gradients", "optimizer_state", "optimizer_state"):
            recording.birth(4 * trained, category, dtype="float32", shape=(trained,))
        recording.birth(activations)
        settings = {"total": 10**6, "strategy": strategy, "world_size": gpus, **more}
        examination: Examination = recording.examination(**settings)
        return examination

    return make
