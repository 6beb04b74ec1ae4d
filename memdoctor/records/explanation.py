"""What ``memdoctor explain`` tells of a rule. Field names are the keys of its JSON."""

from __future__ import annotations

from dataclasses import dataclass

from memdoctor.records.advice import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdLine:
    """A named constant of a rule, with its unit and where it comes from."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyLine:
    """What helps, what it costs at most, and the lever that it pulls, if any."""

    text: str
    cost: Cost
    cost_in_words: str
    lever: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePage:
    """A rule as users read it. ``needs`` is evidence beside the target's own probe."""

    id: str
    family: str
    title: str
    why: str
    needs: tuple[str, ...]
    thresholds: tuple[ThresholdLine, ...]
    remedies: tuple[RemedyLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What was explained: the pages of rules, in the order of their ids."""

    rules: tuple[RulePage, ...]
