"""MD307: fires where little is trained and activations are most of the peak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.rules import Evidence
from memdoctor.rules.optimizer.md307_few_trained import RULE


def test_fires_with_both_figures(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], probed_lever: Callable[..., Any]
) -> None:
    examination = static_step(100, trained=10, activations=1000).examination(lora_rank=8)
    finding = RULE.check(evidence(examination, levers=[probed_lever("checkpointing", 800)]))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 1000)
    assert finding.detail == (
        "10 of 100 parameters are trained, so gradients and optimizer state hold only 120 B; activations hold 1000 B "
        "of the 1.41 KiB at the peak, and training fewer parameters leaves them; probed: checkpointing saves 800 B of "
        "what is reserved"
    )


@pytest.mark.parametrize(("trained", "fires"), [(49, True), (50, False)])
def test_at_half_of_the_parameters(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], trained: int, fires: bool
) -> None:
    examination = static_step(100, trained=trained, activations=1000).examination()
    assert (RULE.check(evidence(examination)) is not None) == fires


@pytest.mark.parametrize(("activations", "fires"), [(440, True), (439, False)])
def test_at_half_of_the_peak(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], activations: int, fires: bool
) -> None:
    """Beside them there are 400 B of parameters and 40 B of gradients."""
    examination = static_step(100, trained=10, activations=activations).examination()
    assert (RULE.check(evidence(examination)) is not None) == fires


@pytest.mark.parametrize("optimizer", ["lomo", "adalomo", "galore_adamw_layerwise"])
def test_gradients_that_come_and_go_tell_nothing(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], optimizer: str
) -> None:
    examination = static_step(100, trained=10, activations=1000).examination(optimizer=optimizer)
    assert RULE.check(evidence(examination)) is None
