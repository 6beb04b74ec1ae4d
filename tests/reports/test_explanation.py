"""Pages of rules on the terminal and in Markdown."""

from __future__ import annotations

import pytest

from memdoctor.records import Explanation, RemedyLine, RulePage, ThresholdLine
from memdoctor.reports.explanation import markdown, print_explanation

PAGE = RulePage(
    id="MD901", family="the environment", title="Another process is on the card", why="It holds memory.",
    needs=("NVML",), thresholds=(ThresholdLine(name="share", value=2.0**-7, unit="of the card", source="ours"),),
    remedies=(RemedyLine(text="it is ended", cost="task", cost_in_words="changes what is trained", lever=""),),
)  # fmt: skip
OTHER = RulePage(
    id="MD801", family="growth", title="It grows", why="It does.", needs=(), thresholds=(),
    remedies=(RemedyLine(text="less", cost="none", cost_in_words="safe", lever=""),),
)  # fmt: skip


def test_one_rule_is_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation(Explanation(rules=(PAGE,)))
    assert [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()] == [
        ["MD901", "Another process is on the card"],
        ["family", "MD9, the environment"],
        ["why", "It holds memory."],
        ["needs", "NVML"],
        ["threshold", "share: 0.0078125 of the card [ours]"],
        ["remedy", "it is ended (changes what is trained)"],
    ]


def test_a_rule_that_needs_no_other_evidence_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation(Explanation(rules=(OTHER,)))
    assert "nothing beside the target's own probe" in capsys.readouterr().out


def test_several_are_a_list_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation(Explanation(rules=(OTHER, PAGE)))
    assert capsys.readouterr().out.splitlines() == [
        "MD8 growth",
        "  MD801   It grows",
        "MD9 the environment",
        "  MD901   Another process is on the card",
    ]


def test_as_a_document_each_is_a_section_of_its_family() -> None:
    document = markdown(Explanation(rules=(OTHER, PAGE)))
    assert document.index("## MD8xx: growth") < document.index("### MD801: It grows")
    assert document.index("### MD801: It grows") < document.index("## MD9xx: the environment")
    assert "- **Threshold** share: 0.0078125 of the card [ours]\n" in document
    assert document.endswith("- **Remedy** it is ended *(changes what is trained)*\n")
