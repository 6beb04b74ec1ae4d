"""MD403: fires where the card is older than the type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from memdoctor.records import NO_CAPABILITY, Dtype, Precision
from memdoctor.rules.precision.md403_not_in_hardware import RULE


def found(holding: Any, evidence: Any, capability: str, **workload: Any) -> Any:
    examined = holding({"activations": 1_000}, **workload)
    return RULE.check(evidence(replace(examined, device=replace(examined.device, compute_capability=capability))))


@pytest.mark.parametrize("workload", [{"precision": Precision.BF16}, {"dtype": Dtype.BFLOAT16}])
@pytest.mark.parametrize(("capability", "fires"), [("7.5", True), ("8.0", False)])
def test_bf16_comes_with_8(holding: Any, evidence: Any, workload: dict[str, Any], capability: str, fires: bool) -> None:
    finding = found(holding, evidence, capability, **workload)
    assert (finding is not None) == fires
    if finding is not None:
        assert finding.severity == "warning"
        assert f"card has compute capability {capability}: bf16 comes with 8.0" in finding.detail


@pytest.mark.parametrize("workload", [{"precision": Precision.FP16}, {"dtype": Dtype.FLOAT16}])
@pytest.mark.parametrize(("capability", "severity"), [("5.2", "info"), ("5.3", "info"), ("6.1", "info"), ("7.0", None)])
def test_fp16_saves_time_from_7_on(
    holding: Any, evidence: Any, workload: dict[str, Any], capability: str, severity: str | None
) -> None:
    finding = found(holding, evidence, capability, **workload)
    assert (None if finding is None else finding.severity) == severity


def test_fp16_without_arithmetic_is_a_warning_where_memory_is_short(holding: Any, evidence: Any) -> None:
    target = holding({"activations": 8_500}, precision=Precision.FP16)
    finding = RULE.check(evidence(replace(target, device=replace(target.device, compute_capability="3.7"))))
    assert finding is not None
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("capability", "precision", "remedies"),
    [
        ("3.7", Precision.FP16, ["fp32"]),
        ("6.1", Precision.BF16, ["fp32"]),
        ("7.0", Precision.BF16, ["fp16 in place of bf16, on cards from compute capability 7.0 to 7.5", "fp32"]),
    ],
)
def test_remedies_are_possible_on_this_card(
    holding: Any, evidence: Any, capability: str, precision: Precision, remedies: list[str]
) -> None:
    finding = found(holding, evidence, capability, precision=precision)
    assert finding.remedies == tuple(f"{remedy} (changes numerics)" for remedy in remedies)


def test_fp32_runs_anywhere(holding: Any, evidence: Any) -> None:
    assert found(holding, evidence, "5.0") is None


def test_the_cpu_is_no_card(holding: Any, evidence: Any) -> None:
    assert found(holding, evidence, NO_CAPABILITY, precision=Precision.BF16) is None
