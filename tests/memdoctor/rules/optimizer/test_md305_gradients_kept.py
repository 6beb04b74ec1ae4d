"""MD305: fires where gradients of the step before are there in forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.rules import Evidence
from memdoctor.rules.optimizer.md305_gradients_kept import RULE


def examined(recording: Any, evidence: Callable[..., Evidence], rest: int, last: str, **workload: Any) -> Evidence:
    """100 B of gradients that stay; in the second step ``rest`` bytes of activations in the phase ``last``."""
    recording.phase(1, "backward")
    recording.birth(100, "gradients")
    recording.phase(2, "forward")
    recording.birth(1, "inputs_and_buffers")
    recording.phase(2, last)
    recording.birth(rest - 1)
    settings = {"zero_grad_set_to_none": False, **workload}
    return evidence(recording.examination(total=10**6, **settings))


def test_fires_where_the_peak_has_them(
    recording: Any, evidence: Callable[..., Evidence], probed_lever: Callable[..., Any]
) -> None:
    found = examined(recording, evidence, 500, "backward")
    finding = RULE.check(evidence(found.examination, levers=[probed_lever("set_to_none", 90)]))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 100)
    assert finding.detail == (
        "gradients of the step before, 100 B, stay through forward and backward beside the activations; the peak is "
        "there; probed: set_to_none saves 90 B of what is reserved"
    )


@pytest.mark.parametrize(
    ("last", "workload", "where"),
    [
        ("optimizer", {}, "in optimizer, where"),
        ("backward", {"gradient_accumulation_steps": 2}, "in a later micro-batch, where"),
    ],
)
def test_elsewhere_it_does_not_matter(
    recording: Any, evidence: Callable[..., Evidence], last: str, workload: dict[str, Any], where: str
) -> None:
    finding = RULE.check(examined(recording, evidence, 500, last, **workload))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 0)
    assert f"the peak is {where} gradients are there anyhow" in finding.detail


def test_dropped_gradients_are_not_meant(recording: Any, evidence: Callable[..., Evidence]) -> None:
    assert RULE.check(examined(recording, evidence, 500, "backward", zero_grad_set_to_none=True)) is None


@pytest.mark.parametrize(("rest", "fires"), [(1900, True), (1901, False)])
def test_at_the_threshold(recording: Any, evidence: Callable[..., Evidence], rest: int, fires: bool) -> None:
    """A twentieth of 2,000 B."""
    assert (RULE.check(examined(recording, evidence, rest, "backward")) is not None) == fires
