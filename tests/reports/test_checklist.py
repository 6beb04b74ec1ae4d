"""The checklist, the decisions and the claims on the terminal: whole, and no wider than it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memdoctor.records import ChecklistStep, Claim, Decision, Diagnosis
from memdoctor.reports.checklist import cause_in_a_line, print_checklist, print_claims

LONG = "activations hold 1.00 GiB of the 2.00 GiB in backward, and 500.00 MiB with checkpointing " * 3


@pytest.fixture
def followed(diagnosis: Diagnosis) -> Diagnosis:
    """With a trace, a decision, and claims."""
    return replace(
        diagnosis,
        checklist=(
            ChecklistStep(id="1", question="Where?", probed=({"batch_size": 1},), showed=f"There. {LONG}."),
            ChecklistStep(id="3", question="Minimal?", probed=(), showed="Not needed.", made=False),
            ChecklistStep(id="4a", question="Batch?", probed=(), showed="It is 1.5 GiB, the batch. More.", cause=True),
        ),
        decisions=(Decision(question="More than one GPU?", answer="no", why="one\x1b[31m alone"),),
        claims=(
            Claim(id="a", claim="it halves", verdict="confirmed", showed=LONG.strip(), evidence={}),
            Claim(id="b", claim="it shrinks", verdict="refuted", showed="it grows", evidence={}),
            Claim(id="c", claim="it is shared", verdict="not probed", showed="by arithmetic", evidence={}),
        ),
    )


@pytest.mark.parametrize("width", [40, 80, 100])
@pytest.mark.parametrize("printing", [print_checklist, print_claims])
def test_no_line_is_wider_than_the_terminal(
    followed: Diagnosis, printing: Callable[[Diagnosis], None], width: int,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(width))
    printing(followed)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= width


def test_steps_are_told_in_order_with_the_cause_marked(followed: Diagnosis, capsys: pytest.CaptureFixture[str]) -> None:
    print_checklist(followed)
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert [line.split()[0] for line in lines if line[:1].isdigit()] == ["1", "3", "4a", "1"]
    assert [line for line in lines if ">>>" in line] == ["4a  >>> Batch?"]
    assert "        Not made. Not needed." in lines
    assert "        It is 1.5 GiB, the batch. More." in lines
    assert "[probed: batch size 1]" in " ".join(text.split())
    assert "1       More than one GPU? No." in lines
    assert "        One?[31m alone." in lines  # and no control character


def test_each_claim_has_its_verdict(followed: Diagnosis, capsys: pytest.CaptureFixture[str]) -> None:
    print_claims(followed)
    lines = capsys.readouterr().out.splitlines()
    for line in ('confirmed   "it halves"', 'refuted     "it shrinks"', 'not probed  "it is shared"'):
        assert line in lines
    assert f"{' ' * 12}It grows." in lines


def test_without_a_checklist_or_claims_nothing_is_printed(
    diagnosis: Diagnosis, capsys: pytest.CaptureFixture[str]
) -> None:
    print_checklist(diagnosis)
    print_claims(diagnosis)
    assert capsys.readouterr().out == ""


def test_the_cause_in_a_line_is_its_first_sentence(followed: Diagnosis, diagnosis: Diagnosis) -> None:
    assert cause_in_a_line(followed) == "It is 1.5 GiB, the batch (checklist, step 4a)"
    assert cause_in_a_line(diagnosis) == ""
