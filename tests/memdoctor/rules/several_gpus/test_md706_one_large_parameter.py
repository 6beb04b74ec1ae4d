"""MD706: fires where full sharding gathers a parameter that is a large part of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memdoctor.rules import Evidence
from memdoctor.rules.several_gpus.md706_one_large_parameter import RULE

Evidences = Callable[..., Evidence]


def model(recording: Any, evidence: Evidences, embedding: int, others: int, **workload: Any) -> Evidence:
    """An embedding of ``embedding`` x 10 fp32 weights and four parameters that share ``others`` of them."""
    recording.phase(0, "setup")
    recording.birth(40 * embedding, "parameters", dtype="float32", shape=(embedding, 10))
    for _ in range(4):
        recording.birth(others, "parameters", dtype="float32", shape=(others // 4,))
    settings = {"strategy": "zero3", "world_size": 8, **workload}
    return evidence(recording.examination(total=10**6, **settings))


def test_fires_with_what_is_gathered_and_the_shard(recording: Any, evidence: Evidences) -> None:
    """4,000 of 8,000 B; an eighth is 1,000."""
    finding = RULE.check(model(recording, evidence, 100, 1000))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("info", 4000)
    assert finding.detail == (
        "the largest parameter is 100x10 x 4 B = 3.91 KiB, 50 % of all; each of the 8 GPUs gathers it whole in forward "
        "and backward beside its shard of 1000 B (not probed: arithmetic on one GPU's step)"
    )


@pytest.mark.parametrize(
    "workload", [{"strategy": "zero2"}, {"strategy": "ddp"}, {"world_size": 1}, {"strategy": "fsdp", "world_size": 2}]
)
def test_where_it_is_not_gathered_or_no_more_than_a_shard_it_is_quiet(
    recording: Any, evidence: Evidences, workload: dict[str, Any]
) -> None:
    """Half of the parameters are what each of two GPUs holds anyhow."""
    assert RULE.check(model(recording, evidence, 100, 1000, **workload)) is None


@pytest.mark.parametrize(("others", "fires"), [(3000, True), (3004, False)])
def test_at_the_threshold(recording: Any, evidence: Evidences, others: int, fires: bool) -> None:
    """4,000 B are a quarter of 16,000."""
    assert (RULE.check(model(recording, evidence, 100, others)) is not None) == fires
