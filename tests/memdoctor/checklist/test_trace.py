"""The trace: what each step says it probed and what that showed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.checklist import asks, trace_of
from memdoctor.levers.kinds import ACCUMULATED
from memdoctor.records import ChecklistStep, Examination, Peak, Plan
from memdoctor.rules import Evidence, evidence_of

Holding = Callable[..., Examination]
MINIMAL = {
    "batch_size": 2, "gradient_accumulation_steps": 8, "gradient_checkpointing": True, "precision": "fp16",
}  # fmt: skip
UNCHECKED = {**MINIMAL, "gradient_checkpointing": False}
FALLBACK = {"batch_size": 1, "gradient_accumulation_steps": 4}


def steps(evidence: Evidence, *plan: Plan) -> dict[str, ChecklistStep]:
    return {step.id: step for step in trace_of(evidence, plan)}


def test_the_saying_about_small_batches_is_tested_at_batch_1_and_2(holding: Holding) -> None:
    target = holding({"activations": 6_000, "parameters": 1_000}, batch_size=8)
    one, two = holding({"activations": 500, "parameters": 1_500}), holding({"activations": 3_000, "parameters": 1_000})
    step = steps(evidence_of(target, {}, probes=[({"batch_size": 1}, one), ({"batch_size": 2}, two)]))["1"]
    assert step.probed == ({"batch_size": 1}, {"batch_size": 2})
    assert "Batch 8: 6.84 KiB allocated in forward, activations 5.86 KiB, parameters 1000 B." in step.showed
    assert "Batch 1: not the activations, which hold 25 % of 1.95 KiB in forward" in step.showed
    assert "Batch 2: the activations, which hold 75 % of 3.91 KiB" in step.showed


def accumulated(new_recording: Callable[[], Any], forwards: int, kept: int, **workload: Any) -> Examination:
    tape = new_recording()
    for _ in range(forwards):
        tape.phase(1, "forward")
        tape.death(tape.birth(1_000))
    gradient = tape.birth(kept, "gradients")
    tape.phase(1, "optimizer")
    tape.death(gradient)
    made: Examination = tape.examination(**workload)
    return made


def test_accumulation_acts_where_one_optimizer_step_follows_all_micro_batches(new_recording: Callable[[], Any]) -> None:
    target = accumulated(new_recording, 4, 1_500, batch_size=3, gradient_accumulation_steps=4)
    micro = accumulated(new_recording, 1, 1_000)
    step = steps(evidence_of(target, {}, probes=[({"gradient_accumulation_steps": 1}, micro)]))["2"]
    assert "3 per device x 4 micro-batches x 1 GPU = 12; memory is that of 3." in step.showed
    assert "It acts: 4 forward passes to 1 optimizer step, and it costs 500 B beside one micro-batch (1000 B)" in (
        step.showed
    )
    assert "gradients of 1.46 KiB persist" in step.showed
    assert "memdoctor probe --verify-accumulation" in step.showed


def test_without_accumulation_it_is_probed_what_it_would_do(new_recording: Callable[[], Any]) -> None:
    target, four = accumulated(new_recording, 1, 1_000), accumulated(new_recording, 4, 1_000)
    step = steps(evidence_of(target, {}, probes=[({"gradient_accumulation_steps": ACCUMULATED}, four)]))["2"]
    assert "x 1 micro-batch x 1 GPU = 1" in step.showed
    assert "Not in use; probed with" in step.showed
    assert "changes nothing beside one micro-batch" in step.showed


def test_checkpointing_that_changes_no_byte_is_ignored(holding: Holding) -> None:
    target = holding({"activations": 5_000}, gradient_checkpointing=True)
    for off, words in ((5_000, "on and ignored: it changes nothing"), (8_000, "on, and saves 2.93 KiB")):
        probes = [({"gradient_checkpointing": False}, holding({"activations": off}))]
        assert words in steps(evidence_of(target, {}, probes=probes))["2"].showed


def test_steps_for_what_does_not_fit_are_not_made_where_the_target_fits(holding: Holding) -> None:
    found = steps(evidence_of(holding({"activations": 5_000}, batch_size=8), {}))
    assert not found["3"].made
    assert found["3"].showed == "Not needed: the target fits."
    assert not found["4d"].made
    assert "Not needed: the batch of 8 fits." in found["5"].showed


def test_the_checklist_asks_for_what_it_needs_next(holding: Holding) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=8)
    small = holding({"activations": 1_500})
    large = holding({"activations": 9_500}, fits=False)
    assert asks(evidence_of(small, {})) == ()
    assert asks(evidence_of(target, {}, probes=[({"batch_size": 1}, small)])) == (MINIMAL, FALLBACK)
    asked = asks(evidence_of(target, {}, probes=[({"batch_size": 1}, large)]))
    assert asked == (MINIMAL, {"batch_size": 1, "seq_length": 4})
    after = [({"batch_size": 1}, small), (MINIMAL, large), (FALLBACK, small)]
    assert asks(evidence_of(target, {}, probes=after)) == (UNCHECKED,)
    assert asks(evidence_of(target, {}, probes=[*after, (UNCHECKED, large)])) == ()


def test_the_minimal_configuration_is_told_and_without_checkpointing_where_it_fails(holding: Holding) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=8)
    on = holding({"activations": 2_000, "parameters": 7_500}, fits=False)
    off = holding({"activations": 4_000, "parameters": 7_500}, fits=False)
    step = steps(evidence_of(target, {}, probes=[(MINIMAL, on), (UNCHECKED, off)]))["3"]
    assert step.probed == (MINIMAL, {k: v for k, v in MINIMAL.items() if k != "gradient_checkpointing"})
    assert "Batch 2 x 8 micro-batches + checkpointing + fp16: 9.28 KiB reserved, does not fit." in step.showed
    assert "Without checkpointing: 11.23 KiB reserved, does not fit" in step.showed
    assert "activations hold 3.91 KiB of that peak, and 1.95 KiB with checkpointing" in step.showed


@pytest.mark.parametrize(("capability", "kind"), [("3.7", None), ("5.3", "fp16"), ("8.0", "bf16")])
def test_the_minimal_configuration_is_in_16_bits_where_the_card_computes_in_them(
    holding: Holding, capability: str, kind: str | None
) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=8)
    target = replace(target, device=replace(target.device, compute_capability=capability))
    assert asks(evidence_of(target, {}))[0].get("precision") == kind


def test_checkpointing_that_saves_nothing_only_costs_time(holding: Holding) -> None:
    target = holding({"activations": 5_000})
    for on, words in ((5_000, "changes nothing (4.88 KiB without it, 4.88 KiB with it); it only costs time here"),
                      (2_000, "saves 2.93 KiB (4.88 KiB without it, 1.95 KiB with it).")):  # fmt: skip
        probes = [({"gradient_checkpointing": True}, holding({"activations": on}))]
        assert words in steps(evidence_of(target, {}, probes=probes))["4c"].showed


def test_the_last_step_names_the_plans_first_fitting_entry(holding: Holding) -> None:
    peak = Peak(
        allocated_bytes=1, max_memory_allocated_bytes=1, reserved_bytes=2_048, device_bytes=4_096, phase="forward",
        step=1,
    )  # fmt: skip
    entry = Plan(
        change={"batch_size": 4, "gradient_accumulation_steps": 2}, why="", peak=peak, fits=True, saves_bytes=1,
        time_cost="", numerics="same", patch={},
    )  # fmt: skip
    target = holding({"activations": 12_000}, fits=False, batch_size=8)
    for one, words in ((holding({"activations": 1_500}), "smaller micro-batches make up an effective batch of 8"),
                       (holding({"activations": 9_500}, fits=False), "It cannot: not even batch 1 runs")):  # fmt: skip
        step = steps(evidence_of(target, {}, probes=[({"batch_size": 1}, one)]), entry)["5"]
        assert words in step.showed
        assert "First of the plan that fits: batch 4 x 2 micro-batches, 2.00 KiB." in step.showed


def test_the_last_step_says_when_micro_batches_of_1_do_not_fit(holding: Holding) -> None:
    target = holding({"activations": 12_000}, fits=False, batch_size=8)
    several = holding({"activations": 9_216}, fits=False, gradient_accumulation_steps=4)
    probes = [({"batch_size": 1}, holding({"activations": 8_500})), (FALLBACK, several)]
    words = "It cannot by itself: batch 1 runs, but batch 1 x 4 micro-batches takes 9.00 KiB and does not fit"
    evidence = evidence_of(target, {}, probes=probes)
    assert words in steps(evidence)["5"].showed
    assert "with more changed" not in steps(evidence)["5"].showed
    peak = Peak(
        allocated_bytes=1, max_memory_allocated_bytes=1, reserved_bytes=2_048, device_bytes=4_096, phase="forward",
        step=1,
    )  # fmt: skip
    entry = Plan(
        change={"batch_size": 4, "gradient_accumulation_steps": 2}, why="", peak=peak, fits=True, saves_bytes=1,
        time_cost="", numerics="same", patch={},
    )  # fmt: skip
    assert "; with more changed it can: batch 4 x 2 micro-batches." in steps(evidence, entry)["5"].showed
