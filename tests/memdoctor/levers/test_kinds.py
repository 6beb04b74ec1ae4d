"""Every lever has a change for a target, or says why there is none; each change is one of the workload or the card."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memdoctor.levers import COSTS, KINDS, Pull, pulls_of
from memdoctor.matrix import apply_to
from memdoctor.records import Attention, Device, Dtype, Precision, Workload

CARD = Device(
    name="card", total_bytes=10_000, compute_capability="7.5", context_bytes=1_000, context_error_bytes=10,
    context_source="by hand", source="by hand",
)  # fmt: skip
TARGET = Workload(model="by-hand", attention=Attention.SDPA)


def pull(name: str, target: Workload = TARGET, card: Device = CARD) -> Pull | str:
    """The lever of this name for a target."""
    return next(pull for kind, pull in pulls_of(target, card) if kind.name == name)


def test_names_are_unique_and_all_that_the_checklist_names_are_there() -> None:
    assert len(COSTS) == len(KINDS)
    assert set(COSTS) == {
        "batch", "length", "fp16", "bf16", "checkpointing", "attention", "fused optimizer", "8-bit optimizer",
        "Adafactor", "SGD", "accumulation", "freezing", "LoRA", "set_to_none", "empty_cache", "expandable_segments",
        "eval_accumulation", "sharding",
    }  # fmt: skip


@pytest.mark.parametrize(
    "target",
    [
        TARGET,
        replace(TARGET, attention=Attention.EAGER, optimizer="adamw_torch", zero_grad_set_to_none=False),
        replace(TARGET, precision=Precision.FP16, gradient_checkpointing=True, gradient_accumulation_steps=8),
        replace(TARGET, freeze=("*embeddings*",), evaluate=True, torch_empty_cache_steps=1),
        replace(TARGET, lora_rank=4, batch_size=1, seq_length=8, optimizer="sgd"),
        replace(TARGET, dtype=Dtype.BFLOAT16, evaluate=True, eval_accumulation_steps=2),
    ],
)
def test_every_change_changes_the_target_and_a_lever_in_use_is_let_go(target: Workload) -> None:
    for kind, found in pulls_of(target, CARD):
        if isinstance(found, Pull):
            changed = apply_to(target, CARD, found.change)
            assert changed != (target, CARD), kind.name
            again = next(p for k, p in pulls_of(*changed) if k.name == kind.name)
            if found.in_use:
                assert not (isinstance(again, Pull) and again.in_use), kind.name
        else:
            assert found


def test_what_is_in_use_is_known_by_the_target() -> None:
    assert pull("attention") == Pull({"attention": "eager"}, in_use=True)
    assert pull("attention", replace(TARGET, attention=Attention.EAGER)) == Pull({"attention": "sdpa"})
    assert pull("fused optimizer") == Pull({"optimizer": "adamw_torch"}, in_use=True)
    assert pull("SGD", replace(TARGET, optimizer="sgd")) == Pull({"optimizer": "adamw_torch_fused"}, in_use=True)
    assert pull("fp16", replace(TARGET, precision=Precision.FP16)) == Pull({"precision": "fp32"}, in_use=True)


def test_bf16_is_pulled_where_the_card_has_it() -> None:
    assert pull("bf16") == "card has no bf16 in hardware (compute capability 7.5)"
    assert pull("bf16", card=replace(CARD, compute_capability="8.0")) == Pull({"precision": "bf16"})


def test_fp16_is_pulled_where_the_card_computes_in_it() -> None:
    assert pull("fp16", card=replace(CARD, compute_capability="5.2")) == (
        "card has no fp16 in hardware (compute capability 5.2)"
    )
    assert pull("fp16", card=replace(CARD, compute_capability="5.3")) == Pull({"precision": "fp16"})


def test_settings_of_the_allocator_are_added_to_those_that_there_are() -> None:
    card = replace(CARD, alloc_conf="max_split_size_mb:128")
    assert pull("expandable_segments", card=card) == Pull(
        {"cuda_alloc_conf": "max_split_size_mb:128,expandable_segments:True"}
    )
    set_ = replace(CARD, alloc_conf="expandable_segments:True")
    assert pull("expandable_segments", card=set_) == Pull({"cuda_alloc_conf": ""}, in_use=True)


@pytest.mark.parametrize("optimizer", ["lomo", "adalomo"])
def test_what_updates_in_backward_accumulates_nothing(optimizer: str) -> None:
    found = pull("accumulation", replace(TARGET, optimizer=optimizer))
    assert found == f"{optimizer} updates the weights in every backward pass: nothing is accumulated"
