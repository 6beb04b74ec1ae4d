"""MD109: fires where a divisor of a batch that does not fit would."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules import check_all
from memdoctor.rules.shape.md109_whole_batch_at_once import RULE


def too_large(holding: Any, **workload: Any) -> Any:
    return holding({"activations": 12_000}, fits=False, **{"batch_size": 12, **workload})


def test_a_probed_divisor(holding: Any, evidence: Any) -> None:
    probes = [
        ({"batch_size": 1}, holding({"activations": 1_024})),
        ({"batch_size": 6}, holding({"activations": 6_144})),
    ]
    finding = RULE.check(evidence(too_large(holding), probes=probes))
    assert finding is not None
    assert "6 fits (probed, 6.00 KiB), and 6 x 2 x 1 GPU is the same effective batch" in finding.detail
    assert finding.at_stake_bytes == 3_000


@pytest.mark.parametrize(("largest", "part"), [(3, 3), (4, 4), (5, 4), (11, 6)])
def test_the_largest_divisor_that_is_predicted_to_fit(
    holding: Any, evidence: Any, scaling: Any, largest: int, part: int
) -> None:
    finding = RULE.check(evidence(too_large(holding), scaling=scaling(largest=largest)))
    assert finding is not None
    assert f"{part} fits (predicted), and {part} x {12 // part} x" in finding.detail


def test_where_nothing_smaller_fits_it_says_nothing(holding: Any, evidence: Any, scaling: Any) -> None:
    assert RULE.check(evidence(too_large(holding), scaling=scaling(largest=None))) is None


@pytest.mark.parametrize("change", [{"gradient_accumulation_steps": 2}, {"batch_size": 1}])
def test_what_is_divided_already_is_not_meant(
    holding: Any, evidence: Any, scaling: Any, change: dict[str, int]
) -> None:
    assert RULE.check(evidence(too_large(holding, **change), scaling=scaling(largest=6))) is None


def test_what_fits_is_not_meant(holding: Any, evidence: Any, scaling: Any) -> None:
    fitting = holding({"activations": 9_000}, batch_size=12)
    assert RULE.check(evidence(fitting, scaling=scaling(largest=12))) is None


def test_with_nothing_known_of_smaller_batches_it_is_not_checked(holding: Any, evidence: Any) -> None:
    checked = check_all([RULE], evidence(too_large(holding)))
    assert [missing.why for missing in checked.not_checked] == ["no smaller batch was probed or predicted"]


def test_a_part_that_does_not_fit_several_times_over_is_none(holding: Any, evidence: Any) -> None:
    one = ({"batch_size": 1}, holding({"activations": 8_500}))
    four = {"batch_size": 1, "gradient_accumulation_steps": 4}
    several = holding({"activations": 9_500}, fits=False, gradient_accumulation_steps=4)
    assert RULE.check(evidence(too_large(holding), probes=[one, (four, holding({"activations": 8_900}))])) is not None
    assert RULE.check(evidence(too_large(holding), probes=[one, (four, several)])) is None


@pytest.mark.parametrize(("optimizer", "fires"), [("sgd", True), ("lomo", False), ("adalomo", False)])
def test_what_updates_in_backward_makes_up_no_batch(
    holding: Any, evidence: Any, scaling: Any, optimizer: str, fires: bool
) -> None:
    finding = RULE.check(evidence(too_large(holding, optimizer=optimizer), scaling=scaling(largest=6)))
    assert (finding is not None) is fires
