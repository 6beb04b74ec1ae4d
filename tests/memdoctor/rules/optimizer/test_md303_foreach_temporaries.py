"""MD303: fires where lists of foreach temporaries hold a share of a peak in the optimizer step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import RanOut
from memdoctor.rules import Evidence
from memdoctor.rules.optimizer.md303_foreach_temporaries import RULE


def test_fires_with_what_would_be_the_peak_without(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], probed_lever: Callable[..., Any]
) -> None:
    examination = static_step(100, activations=900, step=400).examination(optimizer="adamw_torch")
    finding = RULE.check(evidence(examination, levers=[probed_lever("fused optimizer", 300)]))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 2000 - 1700)
    assert finding.detail == (
        "1 outputs of _foreach_sqrt hold 400 B at the peak, 1.95 KiB in the optimizer step; without them the step "
        "takes 1.56 KiB, and forward and backward take 1.66 KiB; probed: fused optimizer saves 300 B of what is "
        "reserved"
    )
    assert finding.remedies[0] == 'optim="adamw_torch_fused" (safe)'


def test_no_fused_kernel_is_promised_for_others(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence]
) -> None:
    finding = RULE.check(evidence(static_step(100, step=400).examination(optimizer="adagrad")))
    assert finding is not None
    assert len(finding.remedies) == 1


def test_a_peak_in_backward_is_not_meant(static_step: Callable[..., Any], evidence: Callable[..., Evidence]) -> None:
    assert RULE.check(evidence(static_step(100, activations=3000, step=400).examination())) is None


@pytest.mark.parametrize(("temporaries", "fires"), [(80, True), (79, False)])
def test_at_the_threshold(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], temporaries: int, fires: bool
) -> None:
    """95 parameters: 1,520 B of static state; a twentieth of 1,600 B is 80."""
    assert (RULE.check(evidence(static_step(95, step=temporaries).examination())) is not None) == fires


@pytest.mark.parametrize(("limit", "severity"), [(1600, "error"), (1599, "warning")])
def test_an_error_where_the_rest_would_fit(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], limit: int, severity: str
) -> None:
    full = RanOut(requested_bytes=1, free_bytes=0, event=0)
    finding = RULE.check(evidence(static_step(100, step=400).examination(total=limit + 1000, outcome=full)))
    assert finding is not None
    assert finding.severity == severity
