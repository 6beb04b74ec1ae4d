"""A small BERT to verify loops on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memdoctor.probes.host import host_device
from memdoctor.probes.verification.run import verify
from memdoctor.records import Loop, Task, Verification, VerificationPlan, Workload

BERT = {
    "model_type": "bert", "vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 16,
}  # fmt: skip
LOOPS = "loops_of_others"

Verify = Callable[..., Verification]


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Verify a loop of ``loops_of_others``, or one that has a name of its own, on two rows of eight tokens."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    def run(loop: str, *, learning_rate: float = 1e-2, config: Any = BERT, **workload: Any) -> Verification:
        settings = {
            "model": "small", "task": Task.TOKEN_CLASSIFICATION, "batch_size": 2, "seq_length": 8,
            "gradient_accumulation_steps": 3, "loop": Loop.TRAINER if loop == "trainer" else Loop.CUSTOM, **workload,
        }  # fmt: skip
        name = loop if loop in ("trainer", "custom") or ":" in loop else f"{LOOPS}:{loop}"
        plan = VerificationPlan(loop=name, learning_rate=learning_rate, steps=8)
        return verify(Workload(**settings), host_device(), config, "by hand", plan)

    return run
