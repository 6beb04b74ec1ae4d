"""The page by its structure: every section, everything escaped, nothing from elsewhere, the same bytes each time."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from memdoctor.records import Budget, Diagnosis, Difference, ModuleUse, TensorGroup
from memdoctor.records.difference import Setting
from memdoctor.reports.documents import diagnosis_document
from memdoctor.reports.html.page import MOST_ROWS, render, render_difference
from memdoctor.reports.text import cut, plain
from memdoctor.storage import write_document

MIB = 1 << 20
SECTIONS = ("memory", "why", "todo", "timeline", "where", "batches", "allocator", "checks", "environment", "reading")
HOSTILE = "<script>alert(1)</script>\"'&\u202e{{ 1234*5678 }}"
VOID = {"meta", "link", "input", "br", "hr", "img", "rect", "path", "line", "use", "circle", "polygon", "polyline"}


class Page(HTMLParser):
    """What is in a page: elements with their attributes, and whether each that opens closes in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element of this name."""
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(diagnosis: Diagnosis) -> str:
    """The page as text."""
    return render(diagnosis).decode()


def test_every_section_is_there_and_named_in_the_contents(real: Diagnosis) -> None:
    page = Page(page_of(real))
    ids = [attributes["id"] for attributes in page.all("section")]
    assert [name for name in SECTIONS if name not in ids] == []
    targets = {attributes["href"] for attributes in page.all("a")}
    assert {f"#{name}" for name in ids} <= targets
    named = [attributes.get("id") for _, attributes in page.elements]
    for target in targets:
        assert target is not None
        assert target.removeprefix("#") in named, target


def test_each_id_is_there_once(real: Diagnosis) -> None:
    ids = [attributes["id"] for _, attributes in Page(page_of(real)).elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_first_screen_answers_whether_why_and_what(real: Diagnosis) -> None:
    text = page_of(real)
    strip = text[text.index("<header") : text.index("</header>")]
    headline, _, why = real.verdict.sentence.partition(": ")
    assert headline in strip
    assert real.provenance.mode in strip
    assert why.split("(")[0] in strip or real.checklist


def test_the_parts_are_all_there_and_sum_to_the_card(real: Diagnosis) -> None:
    text = page_of(real)
    table = text[text.index('id="memory"') : text.index('id="why"')]
    rows = re.findall(r"</td><td class=\"number\">(-?[\d,]+)</td></tr>", table)
    sizes = [int(row.replace(",", "")) for row in rows]
    assert sizes == [*(size for _, size in real.breakdown.items()), real.device.total_bytes]
    assert sum(sizes[:-1]) == sizes[-1]


def test_the_policy_allows_the_page_s_own_styles_and_scripts_and_nothing_else(real: Diagnosis) -> None:
    text = page_of(real)
    (policy,) = [a["content"] for a in Page(text).all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    rules = {part.split()[0]: part.split()[1:] for part in policy.split(";")}
    assert rules["default-src"] == ["'none'"]
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert blocks
        digests = [base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks]
        assert [f"'sha256-{digest}'" for digest in digests] == rules[rule]


def test_nothing_is_fetched_and_no_element_has_code_or_style_of_its_own(real: Diagnosis) -> None:
    for tag, attributes in Page(page_of(real)).elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        for name in ("src", "href", "xlink:href", "data", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), (tag, attributes)


def hostile(value: Any) -> Any:
    """The record with every text in it turned into an attack; enumerations keep what they are."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return value + HOSTILE
    if isinstance(value, tuple):
        return tuple(map(hostile, value))
    if isinstance(value, dict):
        return {key: hostile(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        kept = {"phase", "name", "source", "method", "compute_capability"}
        return replace(value, **{f.name: hostile(getattr(value, f.name)) for f in fields(value) if f.name not in kept})
    return value


def test_whatever_the_user_s_files_say_stays_text(real: Diagnosis) -> None:
    attacked = replace(
        real,
        workload=replace(real.workload, model=HOSTILE),
        provenance=hostile(real.provenance),
        verdict=replace(real.verdict, sentence=f"Fits{HOSTILE}: {HOSTILE}"),
        modules=hostile(real.modules),
        tensors=hostile(real.tensors),
        assumed=(HOSTILE,),
        findings=hostile(real.findings),
        plan=hostile(real.plan),
        checklist=hostile(real.checklist),
        budgets=(Budget(name=HOSTILE, metric=HOSTILE, limit_bytes=1, value_bytes=2, status="exceeded"),),
    )
    text = page_of(attacked)
    honest = len(Page(page_of(real)).all("script"))
    assert len(Page(text).all("script")) == honest
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "{{ 1234*5678 }}" in text
    assert "7006652" not in text


def test_long_lists_are_cut_and_say_so(real: Diagnosis) -> None:
    long = "layer." * 2000
    modules = tuple(ModuleUse(path=f"{long}{n}", activations=5000 - n) for n in range(3000))
    group = real.tensors[0]
    tensors: tuple[TensorGroup, ...] = tuple(replace(group, module=f"{long}{n}") for n in range(3000))
    text = page_of(replace(real, modules=modules, tensors=tensors))
    assert f"The largest {MOST_ROWS} of 3,000 modules" in text
    assert f"The largest {MOST_ROWS} of 3,000 groups of tensors" in text
    assert len(text.encode()) < 2 * MIB


@pytest.mark.parametrize("without", ["tensors", "modules", "toggles", "findings", "plan", "checklist"])
def test_what_is_not_there_leaves_no_hole(real: Diagnosis, without: str) -> None:
    Page(page_of(replace(real, **{without: ()})))


def test_an_examination_alone_has_its_page(real: Diagnosis) -> None:
    alone = replace(
        real, scaling=None, toggles=(), levers=(), plan=(), findings=(), checklist=(), decisions=(), claims=(),
        checks_passed=(), not_checked=(), timeline=None,
    )  # fmt: skip
    text = page_of(alone)
    assert "no rules were checked" in text
    assert "There is no timeline to draw" in text


def test_the_same_file_gives_the_same_bytes_in_every_process(real: Diagnosis, tmp_path: Path) -> None:
    saved = tmp_path / "d.json"
    write_document(saved, diagnosis_document(real), force=False)
    pages = []
    for seed in ("1", "2"):
        written = tmp_path / f"{seed}.html"
        command = [sys.executable, "-m", "memdoctor", "report", str(saved), "-o", str(written)]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
        pages.append(written.read_bytes())
    assert pages[0] == pages[1] == render(real)


def test_names_are_cut_in_the_middle_and_shown_without_what_nobody_sees() -> None:
    assert cut("a" * 200 + "b" * 200, 21) == "a" * 10 + "…" + "b" * 10
    assert cut("one\ntwo\r\nthree") == "one two three"
    assert plain("a\u202eb\x00c\n\td") == "a\ufffdb\ufffdc\n    d"


def test_a_comparison_has_its_page(difference: Difference) -> None:
    text = render_difference(difference).decode()
    page = Page(text)
    assert difference.a.name in text
    assert difference.sentence[:40] in text
    table = text[text.index('id="memory"') : text.index('id="phases"')]
    deltas = [
        int(number)
        for number in re.findall(r'<data value="(-?\d+)" title="-?[\d,]+ B">[+-]?[\d.]+ \w*B</data></td></tr>', table)
    ]
    assert deltas == [row.delta_bytes for row in (*difference.parts, *difference.figures)]
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)


def test_a_comparison_of_hostile_files_stays_text(difference: Difference) -> None:
    sides = [
        replace(side, name=HOSTILE, workload=replace(side.workload, model=HOSTILE))
        for side in (difference.a, difference.b)
    ]
    attacked = replace(
        difference, a=sides[0], b=sides[1], sentence=HOSTILE, cautions=(HOSTILE,), modules=hostile(difference.modules),
        tensors=hostile(difference.tensors), settings=(Setting(of="workload", name=HOSTILE, a=HOSTILE, b=None),),
    )  # fmt: skip
    text = render_difference(attacked).decode()
    assert len(Page(text).all("script")) == len(Page(render_difference(difference).decode()).all("script"))
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "7006652" not in text
