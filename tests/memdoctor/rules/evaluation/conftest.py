"""Evaluations by hand: batches of two samples, whose predictions are joined to those so far."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from memdoctor.records import Examination, RanOut

JOINED = "aten.cat.default"


@pytest.fixture
def evaluated(recording: Any) -> Callable[..., Examination]:
    """1,000 B of parameters and ``lasting`` of optimizer state, ``training`` more in backward; then three batches.

    ``kinds`` are the shapes of a sample of fp32 predictions. The last batch joins 4 samples and 2 to 6, and while it
    does, 4 and 6 of each kind are there. A batch takes ``own`` bytes on its way forward. ``stops``: in evaluation.
    """

    def make(
        *kinds: tuple[int, ...], training: int = 0, lasting: int = 0, own: int = 0, stops: bool = False, **settings: Any
    ) -> Examination:
        recording.phase(0, "setup")
        recording.birth(1000, "parameters", dtype="float32", shape=(250,))
        if lasting:
            recording.birth(lasting, "optimizer_state")
        recording.phase(1, "backward")
        recording.death(recording.birth(training + 1))
        recording.phase(1, "evaluation")
        begin = len(recording.events)
        gathered: list[int] = []
        for batch in (1, 2, 3):
            if own:
                recording.death(recording.birth(own, "temporaries", module="net.layer.0", op="aten.addmm.default"))
            op, module = (JOINED, "") if batch > 1 else ("aten.addmm.default", "net")
            new = [
                recording.birth(
                    4 * 2 * batch * prod(kind), "temporaries", module=module, op=op, dtype="float32",
                    shape=(2 * batch, *kind),
                )
                for kind in kinds
            ]  # fmt: skip
            for old in gathered:
                recording.death(old)
            gathered = new
        for old in gathered:
            recording.death(old)
        usual: dict[str, Any] = {"evaluate": True, "eval_batch_size": 2, "eval_samples": 6, "total": 10**6}
        if stops:
            usual["outcome"] = RanOut(requested_bytes=1, free_bytes=0, event=begin)
        examination: Examination = recording.examination(**{**usual, **settings})
        return examination

    return make
