"""Markdown as GitHub would show it: golden files, and names that must not become markup, links or mentions."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from syrupy.assertion import SnapshotAssertion

from memdoctor.records import (
    Check,
    Diagnosis,
    Difference,
    Edge,
    Examination,
    Fit,
    FitCell,
    ModuleUse,
    Plan,
    Status,
    Trial,
    Verification,
    VerificationPlan,
    Wanted,
)
from memdoctor.reports.markdown import diagnosis_markdown, difference_markdown, fit_markdown, verification_markdown
from memdoctor.reports.markdown.blocks import LARGEST, bar, document, table
from memdoctor.reports.markdown.text import code, fence, raw_html, text

OURS = {
    "details", "summary", "h3", "h4", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code", "pre",
    "strong", "em", "blockquote",
}  # fmt: skip


class Page(HTMLParser):
    """The elements of a rendered document, and its text outside code."""

    def __init__(self, markdown: bytes) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.said = ""
        self._in_code = 0
        self.feed(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown.decode()))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._in_code += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self._in_code -= tag == "code"

    def handle_data(self, data: str) -> None:
        if not self._in_code:
            self.said += data


@pytest.fixture
def planned(diagnosis: Diagnosis) -> Diagnosis:
    """One with an entry of a plan."""
    entry = Plan(
        change={"batch_size": 2, "gradient_accumulation_steps": 2}, why="it fits", peak=diagnosis.toggles[0].peak,
        fits=True, saves_bytes=810 << 20, time_cost="", numerics="same", cost="time", step_time=1.5, step_time_low=1.4,
        step_time_high=1.6, time_kind="estimate",
        patch={"trainer": "per_device_train_batch_size=2,", "cli": "memdoctor diagnose -b 2"},
    )  # fmt: skip
    return replace(diagnosis, plan=(entry,))


@pytest.fixture
def fit(planned: Diagnosis) -> Fit:
    """The largest batch at one length, and a batch that is wanted."""
    peak = planned.peak
    edge = Edge(
        largest_batch=2, predicted_batch=2, capped=False,
        trials=(Trial(batch_size=2, fits=True, peak=peak), Trial(batch_size=3, fits=False, peak=peak)),
    )  # fmt: skip
    return Fit(
        workload=planned.workload, device=planned.device, provenance=planned.provenance,
        cells=(
            FitCell(change={}, seq_length=128, edge=edge),
            FitCell(change={"precision": "fp16"}, seq_length=128, edge=None, why_not="no fp16 here"),
        ),
        wanted=Wanted(
            effective_batch=4, batch_size=4, gradient_accumulation_steps=1, seq_length=128, fits=False, peak=peak,
            plan=planned.plan,
        ),
    )  # fmt: skip


@pytest.fixture
def verification(diagnosis: Diagnosis) -> Verification:
    """One check that failed."""
    check = Check(
        id="gradients", title="gradients as of one batch", status=Status.FAILED, value=0.5, tolerance=1e-6, rule="<=",
        tolerance_reason="by hand", sentence="They differ.", cause="the loss is not divided",
    )  # fmt: skip
    return Verification(
        workload=diagnosis.workload, device=diagnosis.device, provenance=diagnosis.provenance,
        plan=VerificationPlan(), checks=(check,), peaks=(), losses=(1.0,),
    )  # fmt: skip


def test_a_diagnosis(planned: Diagnosis, snapshot: SnapshotAssertion) -> None:
    assert diagnosis_markdown(planned).decode() == snapshot


def test_a_difference(difference: Difference, snapshot: SnapshotAssertion) -> None:
    assert difference_markdown(difference).decode() == snapshot


def test_a_fit(fit: Fit, snapshot: SnapshotAssertion) -> None:
    assert fit_markdown(fit).decode() == snapshot


def test_a_verification(verification: Verification, snapshot: SnapshotAssertion) -> None:
    assert verification_markdown(verification).decode() == snapshot


def test_the_same_report_is_the_same_bytes(planned: Diagnosis, difference: Difference) -> None:
    assert diagnosis_markdown(planned) == diagnosis_markdown(copy.deepcopy(planned))
    assert difference_markdown(difference) == difference_markdown(copy.deepcopy(difference))


def check_harmless(markdown: bytes) -> None:
    """Nothing of what a name asks for is there once the document is rendered."""
    page = Page(markdown)
    assert page.tags <= OURS
    assert re.findall(r"@\w|#\d|GH-\d|://|www\.\w", page.said) == []
    assert re.findall("[\x00-\x09\x0b-\x1f\u202e]", markdown.decode()) == []


def test_names_are_neither_markup_nor_links_nor_mentions(hostile: Diagnosis, hostile_difference: Difference) -> None:
    check_harmless(diagnosis_markdown(hostile))
    check_harmless(difference_markdown(hostile_difference))


def test_names_in_a_fit_and_a_verification_are_harmless_too(
    fit: Fit, verification: Verification, hostile: Diagnosis
) -> None:
    nasty = hostile.provenance.torch
    (check,) = verification.checks
    made = {"workload": hostile.workload, "device": hostile.device, "provenance": hostile.provenance}
    wanted = replace(fit.wanted, plan=hostile.plan) if fit.wanted else None
    cells = tuple(replace(cell, change={"optimizer": nasty}, why_not=nasty) for cell in fit.cells)
    check_harmless(fit_markdown(replace(fit, **made, cells=cells, wanted=wanted)))
    bad = replace(check, title=nasty, sentence=nasty, cause=nasty)
    check_harmless(verification_markdown(replace(verification, **made, checks=(bad,))))


def test_rows_of_tables_keep_their_cells(hostile: Diagnosis, hostile_difference: Difference) -> None:
    for markdown in (diagnosis_markdown(hostile), difference_markdown(hostile_difference)):
        rendered = MarkdownIt("commonmark").enable(["table"]).render(markdown.decode())
        for one in re.findall(r"<table>.*?</table>", rendered, re.DOTALL):
            head, *rows = re.findall(r"<tr>.*?</tr>", one, re.DOTALL)
            assert {len(re.findall("<td", row)) for row in rows} == {len(re.findall("<th", head))}


def test_a_document_is_never_too_large_and_says_what_is_left_out(diagnosis: Diagnosis) -> None:
    modules = tuple(ModuleUse(path=f"m{n}", activations=1) for n in range(100_000))
    assert len(diagnosis_markdown(replace(diagnosis, modules=modules))) < 50_000
    assert "*99980 more rows are left out" in diagnosis_markdown(replace(diagnosis, modules=modules)).decode()
    content = document(["x" * 300 * 1024] * 5)
    assert len(content) <= LARGEST
    assert content.decode().endswith("*3 more parts are left out: a summary on GitHub has room for 1 MiB.*\n")


def test_a_run_of_one_tensor_and_one_of_none_that_is_told(
    examination: Examination, diagnosis: Diagnosis, conclude: Callable[[Examination], Diagnosis]
) -> None:
    assert diagnosis_markdown(conclude(examination)).startswith(b"### Fits")
    empty = replace(diagnosis, tensors=(), modules=(), phases=(), toggles=(), scaling=None)
    assert b"<summary>Modules" not in diagnosis_markdown(empty)


@pytest.mark.parametrize(("said", "written"), [
    ("a_b *c* `d`", r"a\_b \*c\* &#96;d&#96;"),
    ("<b>&", "&lt;b&gt;&amp;"),
    ("@team #12 GH-3", "@&#8203;team #&#8203;12 GH-&#8203;3"),
    ("http://a www.b", "http:&#8203;//a www.&#8203;b"),
    ("a\nb\x00|\u202e", "a b?&#124;?"),
    ("1. - x", r"1\. - x"),
    ("- x", r"\- x"),
    ("[a](b)", r"\[a\](b)"),
])  # fmt: skip
def test_text_is_escaped(said: str, written: str) -> None:
    assert text(said) == written


def test_code_and_summaries_hold_what_they_are_given() -> None:
    assert code("a`b\nc") == "`a'b c`"
    assert code(" ") == ""
    assert raw_html("<a> & @x") == "&lt;a&gt; &amp; @&#8203;x"
    assert table(("a",), [(code("x|y"),)]).endswith(r"| `x\|y` |")


def test_a_fence_is_longer_than_those_in_it() -> None:
    assert fence("a\n````\nb\x1b", "python") == "`````python\na\n````\nb?\n`````"
    assert fence("x" * 5_000).endswith("x\n...\n```")


def test_what_is_not_nothing_has_a_bar() -> None:
    assert [bar(size, 1000) for size in (0, 1, -500, 1000)] == ["", "▏", "█" * 10, "█" * 20]
    assert bar(0, 0) == ""
