"""Estimates of step time beside what NVIDIA measured, and what is known of the levers.

BERT-large on one V100 of a DGX-1, sequences a second: DeepLearningExamples, PyTorch/LanguageModeling/BERT/README.md at
commit 23a6382, "Training performance". Their model is their own, with the same products, eager attention and some
kernels fused by apex; the rates are those of V100's data sheet (SXM2). The efficiencies were chosen with these figures
in view: this holds them to it, and says nothing of other cards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memdoctor.catalogue import find_model
from memdoctor.probes.simulated.probe import simulate
from memdoctor.records import Attention, Device, Examination, Precision, Rates, Task, Workload
from memdoctor.steptime import estimate, relative

V100 = Rates(fp32_tflops=15.7, fp16_tflops=125.0, bf16_tflops=None, bandwidth_gb_s=900.0, source="data sheet")
T4 = Rates(fp32_tflops=8.1, fp16_tflops=65.0, bf16_tflops=None, bandwidth_gb_s=320.0, source="data sheet")
FP16 = Precision.FP16


@pytest.fixture
def simulated(make_card: Callable[..., Device]) -> Callable[..., Examination]:
    def run(model: str, **settings: Any) -> Examination:
        entry = find_model(model)
        assert entry is not None
        facts = {"model_type": entry.model_type, **entry.config}
        return simulate(Workload(model=model, **settings), make_card("7.0"), facts, "the catalogue")

    return run


@pytest.mark.parametrize(
    ("batch", "length", "precision", "task", "sequences_a_second", "within"),
    [
        (4, 512, Precision.FP32, Task.MASKED_LM, 8.36, 0.1),
        (8, 512, FP16, Task.MASKED_LM, 30.08, 0.1),
        (64, 128, FP16, Task.SEQUENCE_CLASSIFICATION, 171.52, 0.1),
        (10, 384, FP16, Task.QUESTION_ANSWERING, 45.2, 0.1),
        (4, 384, FP16, Task.QUESTION_ANSWERING, 35.88, 0.1),
        (4, 384, Precision.FP32, Task.QUESTION_ANSWERING, 8.96, 0.3),
    ],
)
def test_bert_large_on_v100(
    simulated: Callable[..., Examination], batch: int, length: int, precision: Precision, task: Task,
    sequences_a_second: float, within: float,
) -> None:  # fmt: skip
    made = simulated(
        "bert-large-uncased", batch_size=batch, seq_length=length, precision=precision, task=task,
        attention=Attention.EAGER,
    )  # fmt: skip
    measured, estimated = batch / sequences_a_second, estimate(made, V100)
    assert estimated.low_seconds < measured < estimated.high_seconds
    assert estimated.seconds == pytest.approx(measured, rel=within)


def test_checkpointing_costs_about_a_third_of_forward_and_backward(simulated: Callable[..., Examination]) -> None:
    plain, again = simulated("bert-base-uncased"), simulated("bert-base-uncased", gradient_checkpointing=True)
    ratio = relative(again, plain, T4)
    assert 1.20 < ratio.low <= ratio.high < 1.35


def test_fp16_is_faster_on_a_t4(simulated: Callable[..., Examination]) -> None:
    assert relative(simulated("bert-base-uncased", precision=FP16), simulated("bert-base-uncased"), T4).high < 1


def test_many_small_batches_are_slower_than_a_large_one(simulated: Callable[..., Examination]) -> None:
    small = simulated("bert-base-uncased", batch_size=1, gradient_accumulation_steps=32)
    large = simulated("bert-base-uncased", batch_size=32)
    assert relative(small, large, T4).low > 1
    every = replace(small, repeated_micro_steps=0)
    assert estimate(every, T4).seconds < estimate(small, T4).seconds / 5
