"""Whether micro-batches fit, by what was probed and else by arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.rules import Remedy
from memdoctor.rules.accumulating import Split, stops
from memdoctor.rules.reading import left


def split(holding: Any, batch: int, steps: int, size: int) -> Any:
    """A probe of so many micro-batches, on a card of which 9,000 bytes can be had."""
    change = {"batch_size": batch, "gradient_accumulation_steps": steps}
    return change, holding({"activations": size}, fits=size <= 9_000, **change)


@pytest.mark.parametrize(("batch", "found"), [(1, None), (2, Split(2, 3, 9_100)), (6, Split(2, 3, 9_100))])
def test_a_smaller_batch_that_does_not_fit_shows_it(holding: Any, evidence: Any, batch: int, found: Any) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=12)
    probes = [split(holding, 1, 4, 8_000), split(holding, 2, 3, 9_100)]
    assert stops(evidence(target, probes=probes), batch) == found


def test_a_probe_with_more_changed_shows_nothing(holding: Any, evidence: Any) -> None:
    change, found = split(holding, 1, 4, 9_100)
    target = holding({"activations": 12_000}, fits=False, batch_size=12)
    assert stops(evidence(target, probes=[({**change, "optimizer": "sgd"}, found)]), 1) is None


@pytest.mark.parametrize(("costs", "found"), [(4_000, None), (4_001, Split(5, 3, 9_001, 4_001))])
def test_it_is_reckoned_on_the_line(
    holding: Any, evidence: Any, probed_lever: Any, costs: int, found: Split | None
) -> None:
    """Batch 1 takes 1,000 B and batch 12 12,000: 5 take 5,000, and what persists comes on top."""
    target = holding({"activations": 12_000}, fits=False, batch_size=12)
    one = ({"batch_size": 1}, holding({"activations": 1_000}))
    levers = [probed_lever("accumulation", -costs)]
    assert stops(evidence(target, probes=[one], levers=levers), 5) == found


def test_a_split_in_words() -> None:
    assert str(Split(1, 4, 1_024)) == (
        "batch 1 x 4 micro-batches takes 1.00 KiB and does not fit: gradients persist from one to the next"
    )
    assert str(Split(2, 6, 2_048, 1_024)) == (
        "batch 2 x 6 micro-batches is reckoned to take 2.00 KiB and not to fit: the gradients that persist from one to "
        "the next add 1.00 KiB"
    )


@pytest.mark.parametrize(("size", "told"), [(9_000, 2), (9_001, 1)])
def test_accumulation_that_does_not_fit_is_no_remedy(holding: Any, evidence: Any, size: int, told: int) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=12)
    remedies = (Remedy("split", "time", "batch", accumulates=True), Remedy("less", "task"))
    found = evidence(target, probes=[split(holding, 1, 4, size)])
    assert left(found, remedies) == remedies[-told:]
