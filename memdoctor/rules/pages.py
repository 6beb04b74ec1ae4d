"""The rules as pages to read, found by what somebody types."""

from __future__ import annotations

from memdoctor.errors import UsageError
from memdoctor.records import Explanation, RemedyLine, RulePage, ThresholdLine
from memdoctor.rules import FAMILIES, RULES
from memdoctor.rules.rule import COST_IN_WORDS, Rule

_NEAREST = 3
_LEAST_ALIKE = 3  # of the five characters of an id, at their places: its family


def explain(wanted: str | None = None) -> Explanation:
    """The page of one rule (``MD201``), those of a family (``MD2``), or all; in any case of letters.

    Raises:
        UsageError: there is no such rule; says which ids are near.
    """
    key = None if wanted is None else wanted.strip().upper()
    chosen = [rule for rule in RULES if key in (None, rule.id, rule.id[:3])]
    if not chosen:
        raise _unknown(wanted or "")
    return Explanation(rules=tuple(map(page_of, chosen)))


def page_of(rule: Rule) -> RulePage:
    """What is to be read of a rule."""
    return RulePage(
        id=rule.id,
        family=FAMILIES[rule.id[:3]][0],
        title=rule.title,
        why=rule.why,
        needs=tuple(need.what for need in rule.needs),
        thresholds=tuple(
            ThresholdLine(name=each.name, value=each.value, unit=each.unit, source=each.source)
            for each in rule.thresholds
        ),
        remedies=tuple(
            RemedyLine(text=each.text, cost=each.cost, cost_in_words=COST_IN_WORDS[each.cost], lever=each.lever)
            for each in rule.remedies
        ),
    )


def _unknown(wanted: str) -> UsageError:
    alike = {rule.id: _alike(wanted.strip().upper(), rule.id) for rule in RULES}
    ranked = sorted((each for each in alike if alike[each] >= _LEAST_ALIKE), key=lambda each: -alike[each])
    near = ranked[:_NEAREST]
    families = ", ".join(f"{key} {about}" for key, (about, _) in FAMILIES.items())
    return UsageError(
        f"there is no rule {wanted!r}",
        why=f"ids are those of findings, such as {RULES[0].id}; their families: {families}",
        hint=f"{' or '.join(f'memdoctor explain {each}' for each in near)}" if near else "memdoctor explain lists them",
    )


def _alike(typed: str, known: str) -> int:
    return sum(mine == theirs for mine, theirs in zip(typed, known, strict=False))
