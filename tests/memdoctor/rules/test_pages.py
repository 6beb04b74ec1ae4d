"""Rules as pages: by id, by family, in any case, and an unknown id with what is near."""

from __future__ import annotations

import pytest

from memdoctor.errors import UsageError
from memdoctor.rules import RULES
from memdoctor.rules.activations.md201_eager_attention import LEAST_SHARE, RULE
from memdoctor.rules.pages import explain, page_of


@pytest.mark.parametrize("typed", ["MD201", "md201", " Md201 "])
def test_a_rule_by_its_id(typed: str) -> None:
    assert explain(typed).rules == (page_of(RULE),)


def test_a_page_has_all_of_the_rule() -> None:
    page = page_of(RULE)
    assert (page.id, page.title, page.why) == (RULE.id, RULE.title, RULE.why)
    assert page.family == "activations and attention"
    assert [(line.name, line.value, line.source) for line in page.thresholds] == [
        (LEAST_SHARE.name, 0.05, LEAST_SHARE.source)
    ]
    assert [(line.text, line.cost_in_words, line.lever) for line in page.remedies] == [
        ('attn_implementation="sdpa"', "safe", "attention")
    ]


def test_a_family_by_its_key() -> None:
    found = [page.id for page in explain("md2").rules]
    assert found == [rule.id for rule in RULES if rule.id.startswith("MD2")]


def test_without_an_id_all() -> None:
    assert [page.id for page in explain().rules] == [rule.id for rule in RULES]


def test_an_unknown_id_says_what_is_near() -> None:
    with pytest.raises(UsageError, match="there is no rule 'MD2O1'") as caught:
        explain("MD2O1")
    near = [f"memdoctor explain {each}" for each in ("MD201", "MD211", "MD101")]
    assert caught.value.hint == " or ".join(near)


@pytest.mark.parametrize("typed", ["", " ", "attention", "MD"])
def test_what_is_near_nothing_gets_the_list(typed: str) -> None:
    """An id of no characters is no rule either."""
    with pytest.raises(UsageError) as caught:
        explain(typed)
    assert caught.value.hint == "memdoctor explain lists them"
