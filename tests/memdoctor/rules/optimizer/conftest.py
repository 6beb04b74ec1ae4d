"""Training steps by hand, of which the optimizer is what matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def static_step(recording: Any) -> Callable[..., Any]:
    """One step of a model of ``elements`` fp32 parameters with Adam's state; what is kept on top is told by phase.

    Births: 4 x elements of parameters; ``workspace`` and ``activations`` in forward; as many gradients as there are
    ``trained`` parameters in backward; 8 x trained of state, and ``step`` bytes of foreach temporaries, in the step.
    """

    def make(
        elements: int = 100, *, trained: int | None = None, activations: int = 0, step: int = 0, workspace: int = 0
    ) -> Any:
        learning = elements if trained is None else trained
        frozen = elements - learning
        recording.phase(0, "setup")
        for count in filter(None, (learning, frozen)):
            recording.birth(4 * count, "parameters", dtype="float32", shape=(count,))
        recording.phase(1, "forward")
        if workspace:
            recording.birth(workspace, "workspace")
        kept = recording.birth(activations) if activations else None
        recording.phase(1, "backward")
        gradient = recording.birth(4 * learning, "gradients", dtype="float32", shape=(learning,))
        if kept is not None:
            recording.death(kept)
        recording.phase(1, "optimizer")
        for _ in range(2):
            recording.birth(4 * learning, "optimizer_state", dtype="float32", shape=(learning,))
        if step:
            recording.death(recording.birth(step, "temporaries", op="aten._foreach_sqrt.default"))
        recording.phase(1, "zero_grad")
        recording.death(gradient)
        return recording

    return make
