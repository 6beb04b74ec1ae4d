"""MD201: fires on score-shaped tensors of eager attention that hold a share of the peak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import Attention
from memdoctor.rules import Evidence
from memdoctor.rules.activations.md201_eager_attention import RULE

SCORES = (1, 2, 8, 8)
BYTES = 4 * 2 * 8 * 8


def examined(recording: Any, evidence: Callable[..., Evidence], rest: int, **workload: Any) -> Evidence:
    """Two tensors of scores beside ``rest`` bytes of other activations."""
    recording.phase(1, "forward")
    for _ in range(2):
        recording.birth(BYTES, dtype="float32", shape=SCORES)
    recording.birth(rest)
    return evidence(recording.examination(total=10**6, **{"attention": Attention.EAGER, **workload}))


def test_fires_with_the_arithmetic_of_the_scores(recording: Any, evidence: Callable[..., Evidence]) -> None:
    finding = RULE.check(examined(recording, evidence, 1000))
    assert finding is not None
    assert finding.at_stake_bytes == 2 * BYTES
    assert "2 x 1x2x8x8 float32 = 1.00 KiB" in finding.detail
    assert finding.remedies == ('attn_implementation="sdpa" (safe)',)


def test_other_attention_is_not_meant(recording: Any, evidence: Callable[..., Evidence]) -> None:
    assert RULE.check(examined(recording, evidence, 1000, attention=Attention.SDPA)) is None


@pytest.mark.parametrize(("rest", "fires"), [(19 * 2 * BYTES, True), (19 * 2 * BYTES + 1, False)])
def test_at_the_threshold(recording: Any, evidence: Callable[..., Evidence], rest: int, fires: bool) -> None:
    """A twentieth of the peak is enough."""
    assert (RULE.check(examined(recording, evidence, rest)) is not None) == fires
