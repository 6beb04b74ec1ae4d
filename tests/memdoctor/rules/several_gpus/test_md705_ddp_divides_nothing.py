"""MD705: fires where static state, which DDP copies, is most of a peak that does not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memdoctor.records import Examination, RanOut
from memdoctor.rules import Evidence
from memdoctor.rules.several_gpus.md705_ddp_divides_nothing import RULE

Shared = Callable[..., Examination]
Evidences = Callable[..., Evidence]
FULL = RanOut(requested_bytes=1, free_bytes=0, event=0)


def test_fires_with_what_sharding_would_leave(shared_step: Shared, evidence: Evidences) -> None:
    finding = RULE.check(evidence(shared_step("ddp", activations=400, outcome=FULL)))
    assert finding is not None
    assert (finding.severity, finding.at_stake_bytes) == ("warning", 1600)
    assert finding.detail == (
        "each of the 4 GPUs holds all of it: parameters 100 x 4 B = 400 B, gradients 100 x 4 B = 400 B, optimizer "
        "state 2 x 100 x 4 B = 800 B, 1.56 KiB of the 1.95 KiB at the peak. Divided by 4 it would be 400 B (not "
        "probed: arithmetic on one GPU's step)"
    )


def test_what_fits_is_not_meant(shared_step: Shared, evidence: Evidences) -> None:
    assert RULE.check(evidence(shared_step("ddp"))) is None


def test_what_is_sharded_is_not_meant(shared_step: Shared, evidence: Evidences) -> None:
    assert RULE.check(evidence(shared_step("zero2", outcome=FULL))) is None


@pytest.mark.parametrize(("activations", "fires"), [(1600, True), (1601, False)])
def test_at_the_threshold(shared_step: Shared, evidence: Evidences, activations: int, fires: bool) -> None:
    """Half of the peak."""
    examination = shared_step("ddp", activations=activations, outcome=FULL)
    assert (RULE.check(evidence(examination)) is not None) == fires
