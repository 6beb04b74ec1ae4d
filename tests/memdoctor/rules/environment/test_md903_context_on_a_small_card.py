"""MD903: fires where the context is a share of the card."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import RanOut
from memdoctor.records.workload import NO_CAPABILITY
from memdoctor.rules import Evidence
from memdoctor.rules.environment.md903_context_on_a_small_card import RULE

OnCard = Callable[..., Evidence]


def test_fires_with_what_is_left(on_card: OnCard) -> None:
    finding = RULE.check(on_card(1000, context_bytes=2000, context_error_bytes=100))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 2000)
    assert finding.detail == (
        "1.95 KiB of 9.77 KiB are the CUDA context's (known to 100 B either way); PyTorch can have 7.81 KiB"
    )


def test_where_the_run_does_not_fit_it_warns(on_card: OnCard) -> None:
    full = RanOut(requested_bytes=1, free_bytes=0, event=0)
    finding = RULE.check(on_card(10_000, outcome=full))
    assert finding is not None
    assert finding.severity == "warning"


@pytest.mark.parametrize(("context", "fires"), [(1000, True), (999, False)])
def test_at_the_threshold(on_card: OnCard, context: int, fires: bool) -> None:
    """A tenth of 10,000 B."""
    assert (RULE.check(on_card(1000, context_bytes=context)) is not None) == fires


def test_a_processor_has_no_context(on_card: OnCard) -> None:
    assert RULE.check(on_card(1000, compute_capability=NO_CAPABILITY)) is None
