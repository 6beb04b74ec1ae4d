"""MD308: fires for optimizers that page, with what they keep at least outside PyTorch's allocator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.rules import Evidence
from memdoctor.rules.optimizer.md308_paged_state import RULE

LARGE = 100_000


def examined(static_step: Callable[..., Any], evidence: Callable[..., Evidence], limit: int, name: str) -> Evidence:
    """A parameter just large enough to be paged: 1,600,000 B at the peak of PyTorch's own."""
    examination = static_step(LARGE).examination(total=limit + 1000, optimizer=name)
    return evidence(examination)


@pytest.mark.parametrize(
    ("name", "paged"),
    [("paged_adamw_8bit", 200_000), ("paged_adamw_32bit", 800_000), ("paged_lion_8bit", 100_000),
     ("paged_ademamix_32bit", 1_200_000)],
)  # fmt: skip
def test_fires_with_what_is_paged(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], name: str, paged: int
) -> None:
    finding = RULE.check(examined(static_step, evidence, 10**8, name))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", paged)
    assert " x 100,000 x " in finding.detail


@pytest.mark.parametrize(("limit", "severity"), [(1_800_000, "info"), (1_799_999, "warning")])
def test_where_it_has_no_room_its_pages_move(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence], limit: int, severity: str
) -> None:
    finding = RULE.check(examined(static_step, evidence, limit, "paged_adamw_8bit"))
    assert finding is not None
    assert finding.severity == severity
    assert ("1 B more than the card has" in finding.detail) == (severity == "warning")


def test_without_paging_or_large_parameters_it_is_quiet(
    static_step: Callable[..., Any], evidence: Callable[..., Evidence]
) -> None:
    assert RULE.check(examined(static_step, evidence, 10**8, "adamw_bnb_8bit")) is None


def test_at_the_threshold(static_step: Callable[..., Any], evidence: Callable[..., Evidence]) -> None:
    step = static_step(LARGE - 1)
    assert RULE.check(evidence(step.examination(total=10**8, optimizer="paged_adamw_8bit"))) is None
