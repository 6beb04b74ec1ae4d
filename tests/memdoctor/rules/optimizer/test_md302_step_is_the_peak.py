"""MD302: fires where the optimizer step holds nearly as much as the whole run ever does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import RanOut
from memdoctor.rules import Evidence
from memdoctor.rules.optimizer.md302_step_is_the_peak import RULE

FULL = RanOut(requested_bytes=1, free_bytes=0, event=0)


def test_fires_with_what_forward_and_backward_take(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], probed_lever: Callable[..., Any]
) -> None:
    levers = [probed_lever("checkpointing", 0), probed_lever("batch", -5)]
    finding = RULE.check(evidence(static_step(100, activations=64).examination(), levers=levers))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 1600)
    assert finding.detail == (
        "the optimizer step holds 1.56 KiB (parameters 100 x 4 B = 400 B, gradients 100 x 4 B = 400 B, optimizer state "
        "2 x 100 x 4 B = 800 B), the whole run at most 1.56 KiB; activations, 64 B at their most, are gone by then: "
        "batch size, length, checkpointing and attention bring the peak no lower than the step; probed: batch costs 5 "
        "B of what is reserved, checkpointing changes nothing"
    )


@pytest.mark.parametrize(("activations", "fires"), [(3160, True), (3161, False)])
def test_at_the_threshold(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], activations: int, fires: bool
) -> None:
    """990 parameters: the step holds 15,840 B, which is 99 % of 16,000; before, 7,920 B beside the activations."""
    step = static_step(990, activations=activations + 4920)
    finding = RULE.check(evidence(step.examination(total=17_000)))
    assert (finding is not None) == fires
    if finding is not None:
        assert finding.title == "The optimizer step is nearly the peak"
        assert "), the whole run at most 15.63 KiB, in backward; activations" in finding.detail


def test_near_a_peak_elsewhere_it_is_quiet_where_there_is_room(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence]
) -> None:
    assert RULE.check(evidence(static_step(990, activations=8_080).examination(total=10**6))) is None


def test_what_it_holds_adds_up(static_step: Callable[..., Any], evidence: Callable[..., Evidence]) -> None:
    """1,600 B of static state, 2,000 B of workspace that is there from the start, 500 B of temporaries."""
    tape = static_step(100, step=500, workspace=2_000)
    finding = RULE.check(evidence(tape.examination()))
    assert finding is not None
    assert finding.title == RULE.title
    assert finding.detail.startswith(
        "the optimizer step holds 4.00 KiB (parameters 100 x 4 B = 400 B, gradients 100 x 4 B = 400 B, optimizer state "
        "2 x 100 x 4 B = 800 B, workspace 1.95 KiB, temporaries 500 B), the whole run at most 4.00 KiB; activations"
    )


@pytest.mark.parametrize(
    ("total", "severity"),
    [(2000, "error"), (2600, "warning"), (1599 + 1000, "error")],
    ids=["static fits", "all", "by 1"],
)
def test_alone_it_keeps_the_step_from_fitting(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], total: int, severity: str
) -> None:
    """The step takes 2,100 B, 500 of them temporaries; where static state alone is too large, MD301 is the error."""
    limits = {2000: 1600, 2600: 2100, 2599: 2099}
    examination = static_step(100, step=500).examination(total=total, context=total - limits[total], outcome=FULL)
    finding = RULE.check(evidence(examination))
    assert finding is not None
    assert finding.severity == severity


@pytest.mark.parametrize(("total", "severity"), [(2500, "warning"), (2499, "error")])
def test_where_others_decide_it_is_they(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], total: int, severity: str
) -> None:
    """The step takes 2,100 B; 400 B are the context's and 300 B others', who leave enough for the 1,600 B of state."""
    examination = static_step(100, step=500).examination(total=total, context=400, outcome=FULL)
    device = replace(examination.device, other_processes_bytes=300)
    finding = RULE.check(evidence(replace(examination, device=device)))
    assert finding is not None
    assert finding.severity == severity


def test_static_state_that_is_too_large_is_the_error_of_md301(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence]
) -> None:
    finding = RULE.check(evidence(static_step(100).examination(total=2599, outcome=FULL)))
    assert finding is not None
    assert finding.severity == "warning"
