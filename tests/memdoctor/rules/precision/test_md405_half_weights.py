"""MD405: fires where weights are stored in 16 bits and trained as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from memdoctor.records import Dtype
from memdoctor.rules.precision.md405_half_weights import BF16_STEP, FP16_LEAST, RULE


@pytest.mark.parametrize(("dtype", "severity"), [(Dtype.BFLOAT16, "info"), (Dtype.FLOAT16, "warning")])
def test_fires_with_both_sizes(holding: Any, evidence: Any, dtype: Dtype, severity: str) -> None:
    finding = RULE.check(evidence(holding({"parameters": 1_024}, dtype=dtype)))
    assert finding is not None
    assert finding.severity == severity
    assert f"are in {dtype} (1.00 KiB of parameters, 2.00 KiB in fp32)" in finding.detail


def test_fp32_weights_are_not_meant(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding({"parameters": 1_024}))) is None


def test_with_lora_what_is_trained_is_in_fp32(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding({"parameters": 1_024}, dtype=Dtype.BFLOAT16, lora_rank=8))) is None


def test_the_numbers_are_those_of_torch() -> None:
    """An update of half a step or less is rounded away, a larger one is not; Adam's epsilon in float16 is none."""
    one = torch.ones((), dtype=torch.bfloat16)
    assert (one + BF16_STEP.value / 2) == one
    assert (one + BF16_STEP.value * 0.75) == one + BF16_STEP.value
    assert torch.tensor(FP16_LEAST.value, dtype=torch.float16) > 0
    assert torch.tensor(FP16_LEAST.value / 2, dtype=torch.float16) == 0
    assert torch.tensor(1e-8, dtype=torch.float16) == 0
