"""The levers that remedies pull, by the names that levers have."""

from __future__ import annotations

import pytest

from memdoctor.rules import RULES, Rule

LEVERS = {
    "batch", "length", "fp16", "bf16", "checkpointing", "attention", "fused optimizer", "8-bit optimizer", "Adafactor",
    "SGD", "accumulation", "freezing", "LoRA", "set_to_none", "empty_cache", "expandable_segments",
    "eval_accumulation", "sharding",
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_remedy_pulls_a_lever_that_there_is(rule: Rule) -> None:
    assert {remedy.lever for remedy in rule.remedies} <= {"", *LEVERS}
