"""Steps by hand that leave something over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import Examination


@pytest.fixture
def leaking(recording: Any) -> Callable[..., Examination]:
    """A model of 1,000 B that keeps, of each step, ``activations`` and ``temporaries`` of these many bytes.

    The first step also makes 2,000 B of optimizer state and a workspace of 500 B, and a batch is there until the next.
    """

    def make(*, activations: int = 0, temporaries: int = 0, steps: int = 2, **settings: Any) -> Examination:
        recording.phase(0, "setup")
        recording.birth(1000, "parameters")
        batch = None
        for step in range(1, steps + 1):
            recording.phase(step, "forward")
            following = recording.birth(16, "inputs_and_buffers")
            if batch is not None:
                recording.death(batch)
            batch = following
            for size, category in ((activations, "activations"), (temporaries, "temporaries")):
                if size:
                    recording.birth(size, category, module="net", op="aten.tanh.default", shape=(size,))
            recording.phase(step, "backward")
            if step == 1:
                recording.birth(500, "workspace")
            recording.phase(step, "optimizer")
            if step == 1:
                recording.birth(2000, "optimizer_state")
            recording.phase(step, "zero_grad")
            if step == steps:
                recording.death(batch)
        settings = {"total": 10**8, **settings}
        examination: Examination = recording.examination(**settings)
        return examination

    return make
