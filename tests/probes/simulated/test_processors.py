"""Multiprocessors by card."""

from __future__ import annotations

import pytest

from memdoctor.catalogue import gpus
from memdoctor.probes.simulated import processors
from memdoctor.probes.simulated.processors import Processors, processors_of


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        ("T4", (7, 5), Processors(40, 1024)),
        ("Tesla T4", (7, 5), Processors(40, 1024)),
        ("A100-80GB", (8, 0), Processors(108, 2048)),
        ("RTX4090", (8, 9), Processors(128, 1536)),
        ("H100-80GB", (9, 0), Processors(132, 2048)),
        ("B200", (10, 0), Processors(148, 2048)),
    ],
)
def test_a_card_of_the_catalogue_has_its_own(name: str, capability: tuple[int, int], expected: Processors) -> None:
    assert processors_of(name, capability) == expected


def test_any_other_card_counts_as_the_largest_of_its_kind() -> None:
    assert processors_of("of mine", (7, 5)) == Processors(72, 1024)
    assert processors_of("of mine", (13, 0)) == Processors(188, 2048)
    assert processors_of("T4", (8, 0)) == Processors(108, 2048)  # a T4 is of 7.5


def test_every_card_of_the_catalogue_is_listed_and_none_is_larger_than_the_largest() -> None:
    for gpu in gpus():
        major, minor = (int(part) for part in gpu.compute_capability.split("."))
        largest = processors_of("not listed", (major, minor)).count
        assert processors._CARDS[gpu.name] <= largest
