"""MD404: fires where copies of weights hold a tenth of the peak."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.records import Precision
from memdoctor.rules.precision.md404_cast_copies import RULE


def cast(holding: Any, rest: int, **more: Any) -> Any:
    sizes = {"parameters": 2_048, "autocast_copies": 1_024, "activations": rest}
    return holding(sizes, precision=Precision.FP16, **more)


def test_fires_with_the_copies_and_what_they_copy(holding: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(cast(holding, 1_024)))
    assert finding is not None
    assert finding.severity == "info"
    assert finding.detail == (
        "copies of 1 weight in fp16 hold 1.00 KiB, 25 % of the peak in forward, beside the 2.00 KiB of parameters "
        "that they are copies of"
    )
    assert finding.at_stake_bytes == 1_024


def test_short_of_memory_it_is_a_warning(holding: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(cast(holding, 6_000, fits=False)))
    assert finding is not None
    assert finding.severity == "warning"


@pytest.mark.parametrize(("excess", "fires"), [(0, True), (1, False)])
def test_at_the_threshold(holding: Any, evidence: Any, excess: int, fires: bool) -> None:
    rest = 10 * 1_024 - 2_048 - 1_024 + excess
    assert (RULE.check(evidence(cast(holding, rest, total=20_000))) is not None) == fires


def test_without_autocast_there_are_none(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding({"parameters": 2_048}))) is None
