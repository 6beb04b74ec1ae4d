"""MD208: fires where SDPA ran as the math kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import Attention, Precision
from memdoctor.rules.activations.md208_math_attention import RULE

SCORES = (1, 2, 8, 8)
BYTES = 4 * 2 * 8 * 8


def attended(recording: Any, rest: int, *kernels: str, attention: Attention = Attention.SDPA) -> Any:
    recording.phase(1, "forward")
    for _ in range(2):
        recording.birth(BYTES, dtype="float32", shape=SCORES)
    recording.birth(rest)
    examined = recording.examination(total=10**6, attention=attention, precision=Precision.BF16)
    return replace(examined, provenance=replace(examined.provenance, attention_kernels=kernels))


def test_fires_with_the_scores(recording: Any, evidence: Any) -> None:
    finding = RULE.check(evidence(attended(recording, 100, "math")))
    assert finding is not None
    assert finding.severity == "warning"
    assert "ran as math for bf16, without padding on compute capability 7.5" in finding.detail
    assert "8x8 hold 1.00 KiB at the peak (the largest kind: 2 x 1x2x8x8 x 4 B = 1.00 KiB)" in finding.detail
    assert finding.at_stake_bytes == 2 * BYTES


@pytest.mark.parametrize(
    ("kernels", "attention"), [(("memory-efficient",), Attention.SDPA), (("math",), Attention.EAGER)]
)
def test_a_fused_kernel_or_eager_attention_is_not_meant(
    recording: Any, evidence: Any, kernels: tuple[str, ...], attention: Attention
) -> None:
    assert RULE.check(evidence(attended(recording, 100, *kernels, attention=attention))) is None


@pytest.mark.parametrize(("rest", "severity"), [(19 * 2 * BYTES, "warning"), (19 * 2 * BYTES + 1, "info")])
def test_at_the_threshold(recording: Any, evidence: Any, rest: int, severity: str) -> None:
    """A twentieth of the peak is a warning."""
    finding = RULE.check(evidence(attended(recording, rest, "math")))
    assert finding is not None
    assert finding.severity == severity


@pytest.mark.parametrize(
    ("capability", "precision", "starts"),
    [
        ("3.7", Precision.BF16, ["activation"]),
        ("5.0", Precision.BF16, ["fp32,", "activation"]),
        ("7.5", Precision.BF16, ["fp16", "fp32,", "activation"]),
        ("7.5", Precision.FP16, ["fp32,", "activation"]),
        ("7.5", Precision.FP32, ["activation"]),
    ],
)
def test_remedies_are_possible_on_this_card_and_change_the_number_format(
    recording: Any, evidence: Any, capability: str, precision: Precision, starts: list[str]
) -> None:
    found = attended(recording, 100, "math")
    device, workload = found.device, found.workload
    found = replace(
        found,
        device=replace(device, compute_capability=capability),
        workload=replace(workload, precision=precision),
    )
    finding = RULE.check(evidence(found))
    assert finding is not None
    assert [remedy.split()[0] for remedy in finding.remedies] == starts
