"""All rules together: ids that say their family, and nothing left unsaid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memdoctor.rules import FAMILIES, RULES, Rule

LEVERS = {
    "batch", "length", "fp16", "bf16", "checkpointing", "attention", "fused optimizer", "8-bit optimizer", "Adafactor",
    "SGD", "accumulation", "freezing", "LoRA", "set_to_none", "empty_cache", "expandable_segments",
    "eval_accumulation", "sharding",
}  # fmt: skip
HERE = Path(__file__).parent


def test_ids_are_unique_in_order_and_say_their_family() -> None:
    ids = [rule.id for rule in RULES]
    assert ids == sorted(set(ids))
    for start, (_, rules) in FAMILIES.items():
        assert all(re.fullmatch(rf"{start}\d\d", rule.id) for rule in rules)


def test_there_are_enough_of_them() -> None:
    """As many as were promised."""
    assert len(RULES) >= 30


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_says_what_it_is(rule: Rule) -> None:
    assert rule.title
    assert not rule.title.endswith(".")
    assert rule.why.endswith((".", ")"))
    assert rule.remedies
    assert {remedy.lever for remedy in rule.remedies} <= {"", *LEVERS}
    assert all(threshold.source and threshold.unit and threshold.name for threshold in rule.thresholds)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_has_a_test_of_its_own(rule: Rule) -> None:
    assert len(list(HERE.glob(f"*/test_{rule.id.lower()}_*.py"))) == 1
