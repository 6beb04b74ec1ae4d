"""MD704: fires where a strategy for several GPUs has one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Examination
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.several_gpus.md704_one_gpu import RULE

Shared = Callable[..., Examination]
Evidences = Callable[..., Evidence]


@pytest.mark.parametrize(
    ("strategy", "divided"),
    [
        ("zero2", "optimizer state and gradients, 1.17 KiB, are divided by 1, and stay whole"),
        ("ddp", "gradients, 400 B, are reduced over one GPU"),
    ],
)
def test_fires_with_what_stays_whole(shared_step: Shared, evidence: Evidences, strategy: str, divided: str) -> None:
    finding = RULE.check(evidence(shared_step(strategy, 1)))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.detail == (
        f"{strategy} runs with a world size of 1: {divided}; its buckets and buffers come on top (not probed: "
        "arithmetic on one GPU's step)"
    )


@pytest.mark.parametrize(("gpus", "fires"), [(1, True), (2, False)])
def test_at_the_threshold(shared_step: Shared, evidence: Evidences, gpus: int, fires: bool) -> None:
    assert (RULE.check(evidence(shared_step("zero2", gpus))) is not None) == fires


def test_training_on_one_gpu_without_a_strategy_is_not_checked(shared_step: Shared, evidence: Evidences) -> None:
    assert [item.id for item in check_all([RULE], evidence(shared_step("single", 1))).not_checked] == [RULE.id]
