"""The page in a real browser: light and dark, narrow, without scripts, in print, by keyboard, and for everybody.

Needs Chromium or Chrome. Where there is none the tests are skipped, unless ``MEMDOCTOR_NEEDS_BROWSER`` is set.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memdoctor.records import Budget, Diagnosis, Difference
from memdoctor.reports.html.page import render, render_difference

sync_api = pytest.importorskip("playwright.sync_api")
AXE = pytest.importorskip("axe_playwright_python.sync_playwright")

WIDTHS = (1440, 390)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's browser; nothing is downloaded."""
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        if os.environ.get("MEMDOCTOR_NEEDS_BROWSER"):
            pytest.fail("there is no Chromium or Chrome, and MEMDOCTOR_NEEDS_BROWSER is set")
        pytest.skip("there is no Chromium or Chrome")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield made
        made.close()


@pytest.fixture
def file(real: Diagnosis, tmp_path: Path) -> Path:
    """The report as a file."""
    path = tmp_path / "report.html"
    path.write_bytes(render(real))
    return path


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Callable[..., Any]]:
    """Opens the report with settings of the reader's; whatever the console says or the network is asked for fails."""
    contexts: list[Any] = []
    said: list[str] = []
    asked: list[str] = []

    def open_(**settings: Any) -> Any:
        context = browser.new_context(**settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if url != file.as_uri() and not url.startswith("data:")] == []


def until(page: Any, holds: str) -> None:
    """Wait until this is true in the page. Playwright's own way needs ``eval``, which the page forbids."""
    for _ in range(100):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {holds}")


def size(width: int) -> dict[str, int]:
    """A window of this width."""
    return {"width": width, "height": 900}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window_and_nobody_is_shut_out(
    opened: Callable[..., Any], width: int, scheme: str
) -> None:
    page = opened(viewport=size(width), color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = AXE.Axe().run(page).response["violations"]
    told = [(item["id"], item["nodes"][0]["html"][:200], item["nodes"][0]["failureSummary"]) for item in found]
    assert told == []


def test_the_theme_follows_the_reader_s_system_and_the_button(opened: Callable[..., Any]) -> None:
    page = opened(color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(background)
    assert dark != light
    page.click("#theme")
    assert page.evaluate(background) == dark
    page.click("#theme")
    assert page.evaluate(background) == light


def test_the_tensors_are_filtered_and_sorted(opened: Callable[..., Any], real: Diagnosis) -> None:
    page = opened()
    rows = page.locator("#tensors tbody tr")
    assert rows.count() == len(real.tensors)
    page.fill("#tensor-filter", real.tensors[0].category.value)
    alike = [group for group in real.tensors if group.category is real.tensors[0].category]
    assert page.locator("#tensors tbody tr:visible").count() == len(alike)
    assert page.inner_text("#tensor-count") == f"{len(alike)} of {len(real.tensors)}"
    page.fill("#tensor-filter", "no such thing")
    assert page.locator("#tensors tbody tr:visible").count() == 0
    page.fill("#tensor-filter", "")
    sizes = sorted(group.bytes for group in real.tensors)
    head = page.locator("#tensors thead th").first
    for _ in range(2):
        head.locator("button").press("Enter")
        listed = page.eval_on_selector_all("#tensors tbody td:first-child data", "all => all.map(e => Number(e.value))")
        assert listed == (sizes if head.get_attribute("aria-sort") == "ascending" else sizes[::-1])
    assert head.get_attribute("aria-sort") == "ascending"


def test_the_timeline_zooms_by_mouse_and_by_buttons(opened: Callable[..., Any]) -> None:
    page = opened(viewport=size(1440))
    shown = "document.querySelector('#peak').style.left"
    before = page.evaluate(shown)
    page.get_by_role("button", name="zoom in").press("Enter")
    until(page, f"{shown} !== '{before}'")
    page.get_by_role("button", name="all", exact=True).click()
    until(page, f"{shown} === '{before}'")
    page.locator("#timeline-chart .u-over").scroll_into_view_if_needed()
    over = page.locator("#timeline-chart .u-over").bounding_box()
    page.mouse.move(over["x"] + 100, over["y"] + 50)
    page.mouse.down()
    page.mouse.move(over["x"] + over["width"] - 100, over["y"] + 50, steps=5)
    page.mouse.up()
    until(page, f"{shown} !== '{before}'")


def test_what_is_alive_is_told_at_every_instant(opened: Callable[..., Any]) -> None:
    page = opened(viewport=size(1440))
    told = page.locator("#timeline-chart [role=status]")
    assert "activations 18.59 GiB" in told.inner_text()  # at the peak, before anybody points
    page.locator("#timeline-chart .u-over").hover(position={"x": 3, "y": 50})
    until(page, "document.querySelector('#timeline-chart [role=status]').textContent.includes('setup')")


@pytest.mark.parametrize("scripts", [True, False])
def test_a_click_on_the_peak_leads_to_its_tensors(opened: Callable[..., Any], scripts: bool) -> None:
    page = opened(viewport=size(1440), java_script_enabled=scripts)
    page.locator("#peak" if scripts else "#timeline-chart svg.wide a.peak circle").click()
    if scripts:
        until(page, "document.activeElement.id === 'peak-tensors'")
    else:
        assert page.url.endswith("#peak-tensors")


def test_a_patch_is_copied(opened: Callable[..., Any]) -> None:
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    block = page.locator("#todo details[open] .copied").first
    block.locator("button").click()
    until(page, "document.querySelector('#todo .copied button').textContent !== 'Copy'")
    assert block.locator("button").inner_text() in ("Copied", "Selected")


def test_all_is_there_without_javascript(opened: Callable[..., Any], real: Diagnosis) -> None:
    page = opened(java_script_enabled=False)
    text = page.inner_text("body")
    assert real.verdict.sentence.partition(": ")[0] in text
    assert page.locator("#tensors tbody tr:visible").count() == len(real.tensors)
    assert page.locator(".needs-js:visible").count() == 0
    page.locator("#todo details:not([open]) summary").first.click()
    assert page.locator("#todo details[open]").count() == 2


def test_it_prints_whole(opened: Callable[..., Any]) -> None:
    page = opened()
    page.emulate_media(media="print")
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF")
    assert page.locator("nav:visible, #theme:visible, .copied button:visible, input:visible").count() == 0


def test_every_control_is_reached_by_keyboard(opened: Callable[..., Any]) -> None:
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    wanted = page.evaluate(
        "[...document.querySelectorAll('a[href], button, input, summary')].filter(e => e.checkVisibility()).length"
    )
    reached = set()
    for _ in range(3 * wanted):
        reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
        page.keyboard.press("Tab")
    controls = page.evaluate(
        "[...document.querySelectorAll('a[href], button, input, summary')].filter(e => e.checkVisibility())"
        ".map(e => [...document.querySelectorAll('*')].indexOf(e))"
    )
    assert [control for control in controls if control not in reached] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_comparison_is_for_everybody_too(browser: Any, difference: Difference, tmp_path: Path, width: int) -> None:
    path = tmp_path / "difference.html"
    path.write_bytes(render_difference(difference))
    context = browser.new_context(viewport=size(width))
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [item["id"] for item in AXE.Axe().run(page).response["violations"]] == []
    page.click("#theme")
    context.close()
    assert said == []


@pytest.mark.parametrize("width", WIDTHS)
def test_budgets_and_endless_words_shut_nobody_out(browser: Any, real: Diagnosis, tmp_path: Path, width: int) -> None:
    word = "M" * 10_000
    budget = Budget(name=word, metric="peak_reserved", limit_bytes=1, value_bytes=2, status="exceeded")
    path = tmp_path / "long.html"
    finding = replace(real.findings[0], title=word, detail=word, remedies=(word,))
    verdict = replace(real.verdict, sentence=word)
    path.write_bytes(render(replace(real, budgets=(budget,), verdict=verdict, findings=(finding,))))
    context = browser.new_context(viewport=size(width))
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [item["id"] for item in AXE.Axe().run(page).response["violations"]] == []
    context.close()
