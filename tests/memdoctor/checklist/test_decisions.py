"""The decision flow: which branch is taken, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.checklist import decisions_of
from memdoctor.levers import KINDS, not_probed
from memdoctor.records import Decision, Dtype, Examination, Precision, PredictionCheck, Scaling
from memdoctor.rules import evidence_of

Holding = Callable[..., Examination]
PRECISION, CHECKPOINTING, ACCUMULATION, GPUS = range(4)


def decided(target: Examination, which: int, **more: Any) -> Decision:
    return decisions_of(evidence_of(target, {}, **more))[which]


@pytest.mark.parametrize(
    ("capability", "answer"),
    [("5.2", "no: skip it"), ("6.0", "yes: fp16"), ("7.0", "yes: fp16"), ("7.5", "yes: fp16"), ("8.0", "yes: bf16")],
)
def test_the_precision_is_the_cards(holding: Holding, capability: str, answer: str) -> None:
    target = holding({"activations": 5_000})
    decision = decided(replace(target, device=replace(target.device, compute_capability=capability)), PRECISION)
    assert decision.answer == answer
    assert f"card has compute capability {capability}" in decision.why


def test_what_the_precision_does_is_told_where_it_was_probed(holding: Holding) -> None:
    probes = [({"precision": "fp16"}, holding({"activations": 4_000}))]
    assert decided(holding({"activations": 5_000}), PRECISION, probes=probes).why.endswith(
        "it saves 1000 B of the reserved peak here"
    )
    assert decided(holding({"activations": 1}, precision=Precision.FP16), PRECISION).answer == "in use: fp16"
    assert decided(holding({"activations": 1}, dtype=Dtype.BFLOAT16), PRECISION).answer == "skip it"


@pytest.mark.parametrize(
    ("after", "answer"), [(2_000, "yes: do"), (5_000, "yes, but it saves nothing here"), (None, "no")]
)
def test_checkpointing_is_for_what_it_saves(holding: Holding, after: int | None, answer: str) -> None:
    probes = [({"gradient_checkpointing": True}, holding({"activations": after}))] if after else []
    assert decided(holding({"activations": 5_000}), CHECKPOINTING, probes=probes).answer == answer


def scaling(most: int | None) -> Scaling:
    check = PredictionCheck(
        batch_size=12, predicted_allocated_bytes=0, probed_allocated_bytes=0, difference_bytes=0,
        predicted_reserved_bytes=None, probed_reserved_bytes=0,
    )  # fmt: skip
    return Scaling(
        method="event by event", from_batches=(1, 2), per_sample_bytes=1, fixed_bytes=0, phases=(), predicted=(),
        largest_batch_that_fits=most, check=check,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("most", "answer"),
    [(5, "yes: accumulate 3"), (6, "yes: accumulate 2"), (None, "accumulation cannot help"), (12, "no")],
)
def test_a_smaller_batch_is_made_up_by_accumulation(holding: Holding, most: int | None, answer: str) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=12)
    assert decided(target, ACCUMULATION, scaling=scaling(most)).answer == answer


def test_no_accumulation_that_was_probed_not_to_fit(holding: Holding) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=12)
    several = holding({"activations": 9_216}, fits=False, batch_size=1, gradient_accumulation_steps=4)
    probes = [({"batch_size": 1, "gradient_accumulation_steps": 4}, several)]
    decision = decided(target, ACCUMULATION, scaling=scaling(1), probes=probes)
    assert decision.answer == "accumulation cannot help by itself"
    assert decision.why == (
        "1 a device is predicted to fit, but batch 1 x 4 micro-batches takes 9.00 KiB and does not fit: gradients "
        "persist from one to the next"
    )


def test_a_smaller_part_where_the_largest_does_not_fit_when_accumulated(holding: Holding) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=12)
    probes = [
        ({"batch_size": 3, "gradient_accumulation_steps": 4}, holding({"activations": 8_000}, batch_size=3)),
        (
            {"batch_size": 4, "gradient_accumulation_steps": 3},
            holding({"activations": 9_216}, fits=False, batch_size=4, gradient_accumulation_steps=3),
        ),
    ]
    decision = decided(target, ACCUMULATION, scaling=scaling(5), probes=probes)
    assert decision.answer == "yes: accumulate 4"
    assert "3 is the largest that fits when accumulated, and divides 12: 3 x 4 x 1 = 12; batch 4 x 3" in decision.why


def test_a_batch_that_fits_needs_no_accumulation(holding: Holding) -> None:
    decision = decided(holding({"activations": 1}, batch_size=3, gradient_accumulation_steps=2), ACCUMULATION)
    assert (decision.answer, decision.why) == ("no: nothing to accumulate", "the wanted batch fits: 3 x 2 x 1 = 6")


def test_several_gpus_share_what_the_strategy_divides(holding: Holding) -> None:
    sizes = {"parameters": 1_024, "gradients": 1_024, "optimizer_state": 2_048}
    alone = decided(holding(sizes), GPUS)
    assert alone.answer == "no"
    assert "ZeRO-2 (shares 3.00 KiB) or ZeRO-3 and FSDP (4.00 KiB), not probed" in alone.why
    assert "FairScale's OSS" in alone.why
    assert decided(holding(sizes, world_size=2, strategy="ddp"), GPUS).answer == "yes, 2: DDP"
    sharded = decided(holding(sizes, world_size=2, strategy="zero2"), GPUS)
    assert (sharded.answer, sharded.why.split(";")[0]) == ("yes, 2: zero2", "it divides 3.00 KiB by 2, not probed")


@pytest.mark.parametrize(
    ("capability", "answer"), [("5.2", "in use: bf16"), ("7.5", "not bf16: fp16"), ("8.0", "in use: bf16")]
)
def test_a_bf16_that_is_emulated_is_no_answer(holding: Holding, capability: str, answer: str) -> None:
    target = holding({"activations": 5_000}, precision=Precision.BF16)
    decision = decided(replace(target, device=replace(target.device, compute_capability=capability)), PRECISION)
    assert decision.answer == answer


def test_what_updates_in_backward_accumulates_nothing(holding: Holding) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=12, optimizer="lomo")
    decision = decided(target, ACCUMULATION, scaling=scaling(6))
    assert (decision.answer, decision.why.split(",")[0]) == (
        "accumulation cannot help", "lomo updates the weights in every backward pass",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("batch", "answer", "why"),
    [
        (257, "yes, with another effective batch", "257 micro-batches, and the plan tries 256 at most"),
        (257, "yes, with another effective batch", "100 a device is predicted to fit, so 85 x 3 = 255 would"),
        (251, "yes: accumulate 251", "1 x 251 x 1 = 251"),
    ],
)
def test_an_effective_batch_with_few_divisors(holding: Holding, batch: int, answer: str, why: str) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=batch)
    decision = decided(target, ACCUMULATION, scaling=scaling(100))
    assert decision.answer == answer
    assert why in decision.why


def test_a_precision_that_the_optimizer_does_not_take_is_no_answer(holding: Holding) -> None:
    lever = not_probed(next(kind for kind in KINDS if kind.name == "fp16"), "optimizer 'lomo' does not train in fp16")
    decision = decided(holding({"activations": 5_000}, optimizer="lomo"), PRECISION, levers=(lever,))
    assert (decision.answer, decision.why) == ("no", "optimizer 'lomo' does not train in fp16")
