"""MD401: fires where memory is short in fp32 and mixed precision was probed to help on a card that can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import Peak, Precision
from memdoctor.rules import check_all
from memdoctor.rules.precision.md401_full_precision import RULE

TOO_MUCH = {"activations": 10_000}


def saving(probed_lever: Any, size: int, name: str = "fp16", **more: Any) -> Any:
    peak = Peak(
        allocated_bytes=1, max_memory_allocated_bytes=1, reserved_bytes=10_000 - size, device_bytes=10_000 - size,
        phase="forward", step=1,
    )  # fmt: skip
    return probed_lever(name, size, peak=peak, **more)


def test_fires_with_the_better_of_two(holding: Any, evidence: Any, probed_lever: Any) -> None:
    levers = [saving(probed_lever, 2_000), saving(probed_lever, 2_048, "bf16", fits=True)]
    finding = RULE.check(evidence(holding(TOO_MUCH, fits=False), levers=levers))
    assert finding is not None
    assert finding.severity == "warning"
    assert "card (compute capability 7.5) computes in 16 bits; bf16 saves 2.00 KiB" in finding.detail
    assert finding.detail.endswith("and then it fits")
    assert finding.remedies == ("--bf16 (changes numerics)",)


@pytest.mark.parametrize(("saves", "fires"), [(499, False), (500, True)])
def test_at_the_threshold(holding: Any, evidence: Any, probed_lever: Any, saves: int, fires: bool) -> None:
    levers = [saving(probed_lever, saves)]
    assert (RULE.check(evidence(holding(TOO_MUCH, fits=False), levers=levers)) is not None) == fires


@pytest.mark.parametrize(("capability", "fires"), [("6.1", False), ("7.0", True)])
def test_it_takes_tensor_cores(holding: Any, evidence: Any, probed_lever: Any, capability: str, fires: bool) -> None:
    examined = holding(TOO_MUCH, fits=False)
    older = replace(examined, device=replace(examined.device, compute_capability=capability))
    assert (RULE.check(evidence(older, levers=[saving(probed_lever, 2_000)])) is not None) == fires


def test_with_memory_to_spare_it_keeps_quiet(holding: Any, evidence: Any, probed_lever: Any) -> None:
    assert RULE.check(evidence(holding({"activations": 8_000}), levers=[saving(probed_lever, 2_000)])) is None


def test_in_use_it_is_not_absent(holding: Any, evidence: Any, probed_lever: Any) -> None:
    target = holding(TOO_MUCH, fits=False, precision=Precision.FP16)
    assert RULE.check(evidence(target, levers=[saving(probed_lever, 2_000, status="in use")])) is None


def test_one_of_the_two_probes_is_enough(holding: Any, evidence: Any, probed_lever: Any) -> None:
    found = check_all([RULE], evidence(holding(TOO_MUCH, fits=False), levers=[saving(probed_lever, 2_000)]))
    assert not found.not_checked
    assert check_all([RULE], evidence(holding(TOO_MUCH, fits=False))).not_checked[0].why == "fp16 was not probed"
