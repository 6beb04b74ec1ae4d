"""What holds for every rule: ids, places, titles, reasons, thresholds, remedies and tests."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from memdoctor.rules import FAMILIES, RULES, Rule

ROOT = Path(__file__).parents[3]
EVERY = pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
# How a remedy begins; a pattern is something that is there.
IMPERATIVES = {
    "add", "avoid", "checkpoint", "disable", "enable", "freeze", "lower", "raise", "reduce", "set", "switch", "try",
    "turn", "use",
}  # fmt: skip


def test_ids_are_unique_and_in_order() -> None:
    ids = [rule.id for rule in RULES]
    assert [each for each, count in Counter(ids).items() if count > 1] == []
    assert ids == sorted(ids)


def test_titles_are_unique() -> None:
    assert len({rule.title for rule in RULES}) == len(RULES)


@EVERY
def test_it_is_in_its_familys_folder_in_a_file_of_its_own(rule: Rule) -> None:
    package, _, file = rule.check.__module__.rpartition(".")
    family = next(key for key, (_, rules) in FAMILIES.items() if rule in rules)
    assert rule.id[:3] == family
    assert re.fullmatch(rf"{rule.id.lower()}_[a-z0-9_]+", file)
    assert rule in import_module(package).RULES
    assert import_module(rule.check.__module__).RULE is rule


@EVERY
def test_it_has_a_test_of_its_own(rule: Rule) -> None:
    parts = rule.check.__module__.split(".")
    test = ROOT / "tests" / Path(*parts[:-1]) / f"test_{parts[-1]}.py"
    assert test.exists()
    assert f"from {rule.check.__module__} import" in test.read_text(encoding="utf-8")


@EVERY
def test_its_title_is_a_pattern_and_no_remedy(rule: Rule) -> None:
    assert not rule.title.endswith(".")
    assert not {word.lower() for word in rule.title.split()[:1]} & IMPERATIVES
    assert not any(remedy.text.lower() in rule.title.lower() for remedy in rule.remedies)


@EVERY
def test_it_says_why_and_what_helps(rule: Rule) -> None:
    assert rule.why.endswith((".", ".)"))
    assert len(rule.why.split()) >= 10
    assert rule.remedies
    assert all(remedy.text and not remedy.text.endswith(".") for remedy in rule.remedies)


@EVERY
def test_its_thresholds_have_a_unit_and_a_source(rule: Rule) -> None:
    assert all(threshold.name and threshold.unit and threshold.source for threshold in rule.thresholds)


@EVERY
def test_its_module_says_what_it_is(rule: Rule) -> None:
    document = import_module(rule.check.__module__).__doc__ or ""
    assert document.startswith(f"{rule.id}: ")
    assert rule.check.__doc__
