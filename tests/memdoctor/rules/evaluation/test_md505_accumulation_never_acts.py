"""MD505: fires where evaluation has no more batches than it takes to move predictions once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import Examination
from memdoctor.rules import Evidence
from memdoctor.rules.evaluation.md505_accumulation_never_acts import RULE

Evaluated = Callable[..., Examination]
Evidences = Callable[..., Evidence]


def test_fires_with_the_number_of_batches(evaluated: Evaluated, evidence: Evidences) -> None:
    finding = RULE.check(evidence(evaluated((50,), eval_accumulation_steps=3)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 2000)
    assert finding.detail == (
        "6 samples in batches of 2 are 3 batches; predictions would move after every 3: they all stay, 1.95 KiB at "
        "evaluation's peak"
    )


@pytest.mark.parametrize(("settings", "fires"), [({"eval_samples": 6}, True), ({"eval_samples": 7}, False)])
def test_at_the_threshold(evaluated: Evaluated, evidence: Evidences, settings: dict[str, Any], fires: bool) -> None:
    """6 samples are 3 batches of 2, 7 are 4, of which the third moves what there is."""
    examination = evaluated((50,), eval_accumulation_steps=3, **settings)
    assert (RULE.check(evidence(examination)) is not None) == fires


@pytest.mark.parametrize("settings", [{}, {"eval_accumulation_steps": 3, "prediction_loss_only": True}])
def test_where_nothing_is_to_move_it_is_quiet(
    evaluated: Evaluated, evidence: Evidences, settings: dict[str, Any]
) -> None:
    assert RULE.check(evidence(evaluated((50,), **settings))) is None
