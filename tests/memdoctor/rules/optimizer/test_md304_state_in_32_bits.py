"""MD304: fires where state of a parameter's shape is float32 although the optimizer is named for 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.rules import Evidence
from memdoctor.rules.optimizer.md304_state_in_32_bits import RULE


def examined(recording: Any, evidence: Callable[..., Evidence], quantised: int, **workload: Any) -> Evidence:
    """An embedding of 10 x 5 whose two states are float32, and so many bytes of 8-bit state."""
    recording.phase(0, "setup")
    recording.birth(200, "parameters", dtype="float32", shape=(10, 5))
    recording.phase(1, "optimizer")
    for _ in range(2):
        recording.birth(200, "optimizer_state", dtype="float32", shape=(10, 5))
    recording.birth(quantised, "optimizer_state", dtype="uint8", shape=(quantised,))
    recording.birth(8, "optimizer_state", dtype="float32", shape=(2,))  # constants of quantisation
    return evidence(recording.examination(total=10**6, **{"optimizer": "adamw_bnb_8bit", **workload}))


def test_fires_with_what_8_bits_would_take(recording: Any, evidence: Callable[..., Evidence]) -> None:
    finding = RULE.check(examined(recording, evidence, 592))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 300)
    assert finding.detail == (
        "400 B of 1000 B of state are float32 (most of it 2 x 10x5 x 4 B): at 1 B a value they would be 100 B"
    )


def test_an_optimizer_of_32_bits_is_not_meant(recording: Any, evidence: Callable[..., Evidence]) -> None:
    assert RULE.check(examined(recording, evidence, 592, optimizer="adamw_torch")) is None


@pytest.mark.parametrize(("quantised", "fires"), [(3592, True), (3593, False)])
def test_at_the_threshold(recording: Any, evidence: Callable[..., Evidence], quantised: int, fires: bool) -> None:
    """A tenth of the state: 400 of 4,000 B."""
    assert (RULE.check(examined(recording, evidence, quantised)) is not None) == fires


@pytest.mark.parametrize(("activations", "fires"), [(40_000 - 1200, True), (40_000 - 1199, False)])
def test_at_the_threshold_of_the_peak(
    recording: Any, evidence: Callable[..., Evidence], activations: int, fires: bool
) -> None:
    """A hundredth of the peak: 400 of 40,000 B."""
    recording.phase(0, "setup")
    recording.birth(activations)
    assert (RULE.check(examined(recording, evidence, 592)) is not None) == fires
