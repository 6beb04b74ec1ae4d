"""What a rule is: a pattern that costs memory, how it is recognised, and what helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memdoctor.records import Cost, Finding, Severity
from memdoctor.rules.evidence import Evidence

COST_IN_WORDS: Mapping[Cost, str] = {
    "none": "safe",
    "time": "costs time",
    "numerics": "changes numerics",
    "task": "changes what is trained",
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A named constant of a rule, with its unit and where it comes from."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Need:
    """Evidence that a rule cannot do without. ``missing`` says why it is not there, or ``None`` where it is."""

    what: str
    missing: Callable[[Evidence], str | None]


@dataclass(frozen=True, slots=True)
class Remedy:
    """What helps against a pattern, and what it costs at most; ``lever`` names the lever that it pulls, if any.

    It is for cards from compute capability ``since`` on, and before ``before``. ``accumulates`` says that it makes up
    for a smaller batch by gradient accumulation.
    """

    text: str
    cost: Cost
    lever: str = ""
    since: float = 0.0
    before: float = float("inf")
    accumulates: bool = False

    def __str__(self) -> str:
        """The text with its cost."""
        return f"{self.text} ({COST_IN_WORDS[self.cost]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule. ``title`` names the pattern found, never the remedy; ``check`` is pure.

    ``check`` is asked only where all ``needs`` are there; it returns a finding, or ``None`` where the pattern is
    not there.
    """

    id: str
    title: str
    why: str
    needs: tuple[Need, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    remedies: tuple[Remedy, ...]
    check: Callable[[Evidence], Finding | None]

    def finding(
        self,
        severity: Severity,
        detail: str,
        evidence: Mapping[str, int | float | str | bool],
        *,
        at_stake_bytes: int = 0,
        remedies: tuple[Remedy, ...] | None = None,
    ) -> Finding:
        """What the rule found; ``remedies`` where not all of the rule's help here."""
        return Finding(
            id=self.id,
            severity=severity,
            title=self.title,
            detail=detail,
            evidence=evidence,
            remedies=tuple(map(str, self.remedies if remedies is None else remedies)),
            at_stake_bytes=at_stake_bytes,
        )
