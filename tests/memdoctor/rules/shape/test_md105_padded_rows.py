"""MD105: fires on a batch with padding, and says where its mask keeps flash attention away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import Attention, Precision
from memdoctor.rules.shape.md105_padded_rows import RULE

PADDED = {"padded": True, "batch_size": 2, "seq_length": 8, "attention": Attention.SDPA}


def on(examination: Any, capability: str, *kernels: str) -> Any:
    return replace(
        examination,
        device=replace(examination.device, compute_capability=capability),
        provenance=replace(examination.provenance, attention_kernels=kernels),
    )


def test_says_what_a_token_costs(holding: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(holding({"activations": 3_200}, **PADDED)))
    assert finding is not None
    assert finding.severity == "info"
    assert "2 x 8 tokens hold 3.13 KiB of activations at the peak, 200 B a token" in finding.detail
    assert "half their length pay 1.56 KiB" in finding.detail
    assert "mask" not in finding.detail


def test_without_padding_nothing_is_said(holding: Any, evidence: Any) -> None:
    assert RULE.check(evidence(holding({"activations": 3_200}, **{**PADDED, "padded": False}))) is None


def test_short_of_memory_it_is_a_warning(holding: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(holding({"activations": 9_100}, fits=False, **PADDED)))
    assert finding is not None
    assert finding.severity == "warning"


@pytest.mark.parametrize(("capability", "mask"), [("7.5", False), ("8.0", True)])
def test_from_capability_8_on_the_mask_decides_the_kernel(
    holding: Any, evidence: Any, capability: str, mask: bool
) -> None:
    examined = on(holding({"activations": 3_200}, precision=Precision.BF16, **PADDED), capability, "memory-efficient")
    finding = RULE.check(evidence(examined))
    assert finding is not None
    assert finding.evidence["mask_decides_kernel"] == mask
    assert ("attention runs as memory-efficient" in finding.detail) == mask


def test_cudnn_takes_the_mask(holding: Any, evidence: Any) -> None:
    examined = on(holding({"activations": 3_200}, precision=Precision.BF16, **PADDED), "9.0", "cudnn")
    finding = RULE.check(evidence(examined))
    assert finding is not None
    assert finding.evidence["mask_decides_kernel"] is False
