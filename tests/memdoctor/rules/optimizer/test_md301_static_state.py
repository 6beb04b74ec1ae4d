"""MD301: fires where static state is more than the card gives, or half of the peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import RanOut
from memdoctor.rules import Evidence
from memdoctor.rules.optimizer.md301_static_state import RULE

FULL = RanOut(requested_bytes=1, free_bytes=0, event=0)


def test_more_than_the_card_gives_is_an_error(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], probed_lever: Callable[..., Any]
) -> None:
    """100 parameters: 400 B, and gradients 400 B, and 2 x 400 B of state."""
    examination = static_step(100, activations=64).examination(total=2000, context=401, outcome=FULL)
    finding = RULE.check(evidence(examination, levers=[probed_lever("Adafactor", 700), probed_lever("SGD", 0)]))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("error", 1600)
    assert finding.detail == (
        "parameters 100 x 4 B = 400 B, gradients 100 x 4 B = 400 B, optimizer state 2 x 100 x 4 B = 800 B: 1.56 KiB "
        "together, 1 B more than the 1.56 KiB that PyTorch can have on this card, before the first activation; no "
        "batch size and no length changes it; probed: Adafactor saves 700 B of what is reserved, SGD changes nothing"
    )


@pytest.mark.parametrize(("total", "severity"), [(2000, "warning"), (1999, "error")])
def test_where_others_decide_the_model_is_not_too_large(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], total: int, severity: str
) -> None:
    """1,600 B of state and 64 B of activations, which die before; 400 B are the context's, and 100 B others'."""
    examination = static_step(100, activations=64).examination(total=total, context=400, outcome=FULL)
    device = replace(examination.device, other_processes_bytes=100)
    finding = RULE.check(evidence(replace(examination, device=device)))
    assert finding is not None
    assert finding.severity == severity


def test_exactly_what_the_card_gives_is_no_error(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence]
) -> None:
    examination = static_step(100, activations=64).examination(total=2000, context=400, outcome=FULL)
    finding = RULE.check(evidence(examination))
    assert finding is not None
    assert finding.severity == "warning"
    assert "100 % of 1.56 KiB" in finding.detail


@pytest.mark.parametrize(("more", "fires"), [(0, True), (1, False)])
def test_at_half_of_the_peak(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], more: int, fires: bool
) -> None:
    """At the peak, in backward, there are 400 B of parameters and 400 B of gradients beside the activations."""
    step = static_step(100, activations=2000)
    step.phase(2, "forward")
    step.birth(1200, "optimizer_state")  # so that static state at the peak of step 2 is 400 + 800 + 1200
    step.birth(2400 + more)
    finding = RULE.check(evidence(step.examination(total=10**5)))
    assert (finding is not None) == fires
    if finding is not None:
        assert finding.severity == "info"


def test_where_the_step_fits_and_is_the_peak_md302_says_it(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence]
) -> None:
    assert RULE.check(evidence(static_step(100, activations=64).examination())) is None


@pytest.mark.parametrize(("phase", "fires"), [("forward", True), ("evaluation", False)])
def test_where_evaluation_is_the_peak_it_is_quiet(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], phase: str, fires: bool
) -> None:
    """400 B of parameters and 800 B of state are still there, and 800 B of what the phase takes."""
    step = static_step(100)
    step.phase(2, phase)
    step.birth(800, "temporaries")
    assert (RULE.check(evidence(step.examination())) is not None) == fires


def test_what_is_in_use_is_no_remedy(static_step: Callable[..., Any], evidence: Callable[..., Evidence]) -> None:
    examination = static_step(100).examination(total=1500, outcome=FULL, optimizer="adafactor", freeze=("*",))
    finding = RULE.check(evidence(examination))
    assert finding is not None
    assert not any(text.startswith(("adafactor", "freeze")) for text in finding.remedies)
