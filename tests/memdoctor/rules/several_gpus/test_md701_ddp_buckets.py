"""MD701: fires where gradients that DDP copies are a share of the peak."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Examination, NotChecked
from memdoctor.rules import Evidence, check_all
from memdoctor.rules.several_gpus.md701_ddp_buckets import RULE

Shared = Callable[..., Examination]
Evidences = Callable[..., Evidence]


def test_fires_with_the_size_of_the_copy(shared_step: Shared, evidence: Evidences) -> None:
    finding = RULE.check(evidence(shared_step("ddp", activations=400)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 400)
    assert finding.detail == (
        "each of the 4 GPUs holds buckets as large as all gradients, 100 x 4 B = 400 B, beside the 1.95 KiB of one "
        "GPU's step (not probed: arithmetic on one GPU's step)"
    )


@pytest.mark.parametrize(("strategy", "gpus"), [("zero2", 4), ("ddp", 1)])
def test_others_are_not_meant(shared_step: Shared, evidence: Evidences, strategy: str, gpus: int) -> None:
    assert RULE.check(evidence(shared_step(strategy, gpus))) is None


@pytest.mark.parametrize(("activations", "fires"), [(6400, True), (6401, False)])
def test_at_the_threshold(shared_step: Shared, evidence: Evidences, activations: int, fires: bool) -> None:
    """A twentieth of 8,000 B."""
    assert (RULE.check(evidence(shared_step("ddp", activations=activations))) is not None) == fires


def test_on_one_gpu_it_is_not_checked(shared_step: Shared, evidence: Evidences) -> None:
    checked = check_all([RULE], evidence(shared_step("single", 1)))
    assert checked.not_checked == (NotChecked(id=RULE.id, title=RULE.title, why="training is on one GPU"),)
