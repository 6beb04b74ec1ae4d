"""Runs the rules over the evidence: what was found, what was not there, and what could not be checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memdoctor.records import Finding, NotChecked
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Rule

_SEVERITY = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of all rules: every rule is in exactly one of the three, passed ones by their id."""

    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    not_checked: tuple[NotChecked, ...]


def check_all(rules: Sequence[Rule], evidence: Evidence) -> Checked:
    """Check each rule; findings come worst first, and among equals the one with most bytes at stake."""
    found: list[Finding] = []
    passed: list[str] = []
    not_checked: list[NotChecked] = []
    for rule in rules:
        reason = _missing(rule, evidence)
        if reason is not None:
            not_checked.append(NotChecked(id=rule.id, title=rule.title, why=reason))
            continue
        finding = rule.check(evidence)
        if finding is None:
            passed.append(rule.id)
        else:
            found.append(finding)
    found.sort(key=lambda finding: (_SEVERITY.index(finding.severity), -finding.at_stake_bytes, finding.id))
    return Checked(tuple(found), tuple(passed), tuple(not_checked))


def _missing(rule: Rule, evidence: Evidence) -> str | None:
    reasons = (need.missing(evidence) for need in rule.needs)
    return next((reason for reason in reasons if reason is not None), None)
