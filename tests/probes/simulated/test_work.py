"""What a step computes and moves, counted by hand.

A layer of BERT with hidden size h, b rows of s tokens: 24 b s h^2 operations in the forward products of its weights and
4 b s^2 h in those of attention (Korthikanti et al. 2022, arXiv:2205.05198, appendix A, with a feed-forward of 4 h).
Backward takes twice that, and fused attention's makes the scores once more: 5 products in place of 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from memdoctor.probes.work import WorkCounter
from memdoctor.records import Attention, Examination, PhaseName, PhaseWork, Precision

B, S, H, LAYERS, LABELS = 2, 32, 64, 2, 2
WEIGHTS, SCORES = 24 * B * S * H * H, 4 * B * S * S * H  # of a layer
HEAD = 2 * B * H * H + 2 * B * H * LABELS  # pooler and classifier
F32 = 4


def of_phase(examination: Examination, name: str, step: int = 2) -> PhaseWork:
    return next(work for work in examination.work if (work.name.value, work.step) == (name, step))


def test_the_products_of_berts_layers(probe: Callable[..., Examination], small_bert: Any) -> None:
    made = probe(small_bert())
    forward = LAYERS * (WEIGHTS + SCORES) + HEAD
    assert of_phase(made, "forward").fp32_flops == forward
    assert of_phase(made, "backward").fp32_flops == 2 * forward + LAYERS * SCORES // 2
    assert {of_phase(made, name).fp32_flops for name in ("clip", "optimizer", "zero_grad")} == {0}


def test_eager_attention_makes_no_scores_anew(probe: Callable[..., Examination], small_bert: Any) -> None:
    made = probe(small_bert(), attention=Attention.EAGER)
    forward = LAYERS * (WEIGHTS + SCORES) + HEAD
    assert (of_phase(made, "forward").fp32_flops, of_phase(made, "backward").fp32_flops) == (forward, 2 * forward)


def test_checkpointing_runs_the_layers_forward_once_more(probe: Callable[..., Examination], small_bert: Any) -> None:
    plain, again = probe(small_bert()), probe(small_bert(), gradient_checkpointing=True)
    difference = of_phase(again, "backward").fp32_flops - of_phase(plain, "backward").fp32_flops
    assert difference == LAYERS * (WEIGHTS + SCORES)


def test_autocast_makes_them_of_16_bits(probe: Callable[..., Examination], small_bert: Any) -> None:
    full, half = probe(small_bert()), probe(small_bert(), precision=Precision.FP16)
    for phase in ("forward", "backward"):
        assert of_phase(half, phase).fp32_flops == 0
        assert of_phase(half, phase).half_flops == of_phase(full, phase).fp32_flops
    assert of_phase(half, "forward").product_bytes < of_phase(full, "forward").product_bytes


def test_work_is_that_of_the_timelines_phases(probe: Callable[..., Examination], small_bert: Any) -> None:
    made = probe(small_bert(), gradient_accumulation_steps=8)
    assert [(work.step, work.name) for work in made.work] == [(p.step, p.name) for p in made.timeline.phases]
    second, third = [work for work in made.work if (work.step, work.name) == (2, PhaseName.FORWARD)][1:3]
    assert second == third


class Counted:
    """Operators on the CPU, one by one."""

    def __init__(self) -> None:
        self.counter = WorkCounter("cpu")
        self.counter.begin(1, PhaseName.FORWARD)

    def run(self, func: Any, *args: Any, **kwargs: Any) -> PhaseWork:
        self.counter.count(func, args, kwargs, func(*args, **kwargs))
        return self.counter.phases()[0]


aten = torch.ops.aten
X = torch.zeros(3, 5)


@pytest.mark.parametrize(
    ("call", "moved", "kernels"),
    [
        pytest.param((aten.add.Tensor, X, X), 3 * 15 * F32, 1, id="reads two, writes one"),
        pytest.param((aten.add.Tensor, X, torch.zeros(1, 5).expand(3, 5)), (15 + 5 + 15) * F32, 1, id="expanded"),
        pytest.param((aten.add_.Tensor, X.clone(), X), 3 * 15 * F32, 1, id="in place"),
        pytest.param((aten.copy_.default, X.clone(), X), 2 * 15 * F32, 1, id="a copy reads its source alone"),
        pytest.param((aten.zero_.default, X.clone()), 15 * F32, 1, id="overwritten"),
        pytest.param((aten.view.default, X, [15]), 0, 0, id="view"),
        pytest.param((aten.empty_like.default, X), 0, 0, id="not filled"),
        pytest.param((aten._foreach_add.Scalar, [X] * 111, 1.0), 2 * 111 * 15 * F32, 2, id="two lists, 64 a kernel"),
        pytest.param((aten._foreach_add_.Scalar, [X.clone()] * 111, 1.0), 2 * 111 * 15 * F32, 2, id="one list of 110"),
    ],
)
def test_bytes_and_kernels(call: tuple[Any, ...], moved: int, kernels: int) -> None:
    work = Counted().run(*call)
    assert (work.other_bytes, work.kernels) == (moved, kernels)
    assert (work.fp32_flops, work.product_bytes) == (0, 0)


def test_a_product() -> None:
    work = Counted().run(aten.mm.default, torch.zeros(3, 5), torch.zeros(5, 7))
    assert (work.fp32_flops, work.product_bytes, work.other_bytes) == (2 * 3 * 5 * 7, (15 + 35 + 21) * F32, 0)


def test_a_convolution() -> None:
    work = Counted().run(
        aten.convolution.default, torch.zeros(2, 3, 8), torch.zeros(4, 3, 5), None, [1], [0], [1], False, [0], 1
    )
    assert work.fp32_flops == 2 * 2 * 4 * 4 * 3 * 5  # rows, channels out, places, channels in, width


def test_fused_adamw(small_bert: Any, probe: Callable[..., Examination]) -> None:
    """It reads parameters, gradients and two moments and writes all but the gradients; steps are counted up before.

    Two groups, each a kernel that counts and, with 36 tensors a kernel at most, one that updates.
    """
    made = probe(small_bert())
    parameters = [block.bytes for block in made.timeline.blocks if block.category.value == "parameters"]
    step = of_phase(made, "optimizer")
    assert step.other_bytes == 7 * sum(parameters) + 3 * F32 * len(parameters)
    assert step.kernels == 4
