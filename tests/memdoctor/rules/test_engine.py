"""Each rule ends in one of three: found, passed, or not checked with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memdoctor.records import Finding, NotChecked, Severity
from memdoctor.rules import Evidence, Need, Remedy, Rule, check_all


def rule(number: int, found: tuple[Severity, int] | None, missing: str | None = None) -> Rule:
    """One that finds something of this severity with so many bytes at stake, or nothing; and what it misses."""

    def check(evidence: Evidence) -> Finding | None:
        assert missing is None, "asked although evidence is missing"
        return None if found is None else made.finding(found[0], "", {}, at_stake_bytes=found[1])

    made = Rule(
        id=f"MD{number}", title=f"Rule {number}", why="", remedies=(Remedy("less", "none"),),
        needs=(Need("something", lambda evidence: missing),), check=check,
    )  # fmt: skip
    return made


def test_findings_are_ranked_and_what_is_missing_is_no_pass(two_steps: Any, evidence: Callable[..., Evidence]) -> None:
    rules = [
        rule(1, ("info", 900)), rule(2, ("warning", 10)), rule(3, None), rule(4, None, "nobody looked"),
        rule(5, ("warning", 20)), rule(6, ("error", 1)), rule(7, ("warning", 0), "nothing was probed"),
    ]  # fmt: skip
    checked = check_all(rules, evidence(two_steps))
    assert [finding.id for finding in checked.findings] == ["MD6", "MD5", "MD2", "MD1"]
    assert checked.passed == ("MD3",)
    assert checked.not_checked == (
        NotChecked(id="MD4", title="Rule 4", why="nobody looked"),
        NotChecked(id="MD7", title="Rule 7", why="nothing was probed"),
    )
