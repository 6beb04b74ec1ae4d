"""MD703: fires where activations, which no stage shards, are most of the peak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.records import Examination, RanOut
from memdoctor.rules import Evidence
from memdoctor.rules.several_gpus.md703_stage_without_effect import RULE

Shared = Callable[..., Examination]
Evidences = Callable[..., Evidence]


@pytest.mark.parametrize(
    ("strategy", "words", "sharded", "saved"),
    [
        ("zero1", "optimizer state", "800 B", "600 B"),
        ("zero2", "optimizer state and gradients", "1.17 KiB", "900 B"),
        ("zero3", "optimizer state, gradients and parameters", "1.56 KiB", "1.17 KiB"),
        ("fsdp", "optimizer state, gradients and parameters", "1.56 KiB", "1.17 KiB"),
    ],
)
def test_fires_with_the_most_that_a_stage_can_save(
    shared_step: Shared, evidence: Evidences, strategy: str, words: str, sharded: str, saved: str
) -> None:
    """On 4 GPUs three quarters of what is divided."""
    finding = RULE.check(evidence(shared_step(strategy, activations=2400)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 2400)
    assert finding.detail == (
        f"{strategy} on 4 GPUs shards {words}, {sharded} of the 3.91 KiB at the peak, and saves at most 3/4 of it, "
        f"{saved}; activations hold 2.34 KiB, which every GPU keeps (not probed: arithmetic on one GPU's step)"
    )


def test_where_it_does_not_fit_it_warns(
    shared_step: Shared, evidence: Evidences, probed_lever: Callable[..., Any]
) -> None:
    full = RanOut(requested_bytes=1, free_bytes=0, event=0)
    examination = shared_step("zero2", activations=2400, outcome=full)
    finding = RULE.check(evidence(examination, levers=[probed_lever("checkpointing", 2000)]))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.detail.endswith("; probed: checkpointing saves 1.95 KiB of what is reserved")


@pytest.mark.parametrize(("strategy", "gpus"), [("ddp", 4), ("zero2", 1)])
def test_others_are_not_meant(shared_step: Shared, evidence: Evidences, strategy: str, gpus: int) -> None:
    assert RULE.check(evidence(shared_step(strategy, gpus, activations=2400))) is None


@pytest.mark.parametrize(("activations", "fires"), [(1600, True), (1599, False)])
def test_at_the_threshold(shared_step: Shared, evidence: Evidences, activations: int, fires: bool) -> None:
    """Half of the peak: as much as the 1,600 B of static state."""
    assert (RULE.check(evidence(shared_step("zero2", activations=activations))) is not None) == fires
