"""MD702: fires where ZeRO's default bucket has more elements than the model has gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Examination, Precision
from memdoctor.rules import Evidence
from memdoctor.rules.several_gpus.md702_zero_buckets import RULE

Shared = Callable[..., Examination]
Evidences = Callable[..., Evidence]
CARD = 2**40


def test_fires_with_both_sizes(shared_step: Shared, evidence: Evidences) -> None:
    """BERT-base: 109,483,778 gradients."""
    finding = RULE.check(evidence(shared_step("zero2", trained=109_483_778, total=CARD, precision=Precision.FP16)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 2 * (500_000_000 - 109_483_778))
    assert finding.detail == (
        "a reduce bucket of the default size is 500,000,000 x 2 B = 953.67 MiB, and a second one with overlap_comm; "
        "all gradients of the model are 109,483,778 x 2 B = 208.82 MiB, and optimizer state holds 835.29 MiB before it "
        "is sharded (not probed: arithmetic on one GPU's step)"
    )


def test_fp32_takes_twice_as_much_and_stage_3_one_bucket(shared_step: Shared, evidence: Evidences) -> None:
    finding = RULE.check(evidence(shared_step("zero3", total=CARD)))
    assert finding is not None
    assert finding.detail.startswith("a reduce bucket of the default size is 500,000,000 x 4 B = 1.86 GiB; all")


@pytest.mark.parametrize(("strategy", "gpus"), [("ddp", 4), ("zero2", 1)])
def test_others_are_not_meant(shared_step: Shared, evidence: Evidences, strategy: str, gpus: int) -> None:
    assert RULE.check(evidence(shared_step(strategy, gpus))) is None


@pytest.mark.parametrize(("trained", "fires"), [(499_999_999, True), (500_000_000, False)])
def test_at_the_threshold(shared_step: Shared, evidence: Evidences, trained: int, fires: bool) -> None:
    assert (RULE.check(evidence(shared_step("zero1", trained=trained, total=CARD))) is not None) == fires
