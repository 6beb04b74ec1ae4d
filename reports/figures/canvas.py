"""A report on one canvas that reads well in a pull request, and each figure alone."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.figure import Figure

from memdoctor.levers.wording import in_words
from memdoctor.records import Category, Diagnosis, Difference, Fit, ModuleUse
from memdoctor.reports.advice import time_of
from memdoctor.reports.charts.batch_map import batch_map_of
from memdoctor.reports.charts.stack import Stack, stack_of
from memdoctor.reports.checklist import cause_in_a_line
from memdoctor.reports.figures import bar, parts
from memdoctor.reports.figures.drawing import file_of, style
from memdoctor.reports.figures.fits import largest_batches
from memdoctor.reports.figures.layout import Panel, stacked
from memdoctor.reports.text import sentence
from memdoctor.reports.wording import peak_sum, setting_of
from memdoctor.units import format_bytes

_EVENTS = 1200  # of a timeline that are drawn, beside the ends of its phases
_ROW = 0.27  # inches: a bar of several
_ON_CANVAS = ("capacity", "timeline", "toggles")
_NO_TIMELINE = "No timeline to draw: the file was written by memdoctor 0.1, or holds conclusions only."
_EMPTY_TIMELINE = "No timeline to draw: nothing was allocated."


def diagnosis_png(diagnosis: Diagnosis) -> bytes:
    """The canvas, 1800 pixels wide."""
    return _diagnosis(diagnosis, "png")


def diagnosis_svg(diagnosis: Diagnosis) -> bytes:
    """The canvas as SVG, its text as outlines."""
    return _diagnosis(diagnosis, "svg")


def difference_png(difference: Difference) -> bytes:
    """What one holds more than the other, part by part."""
    return _difference(difference, "png")


def difference_svg(difference: Difference) -> bytes:
    """As :func:`difference_png`."""
    return _difference(difference, "svg")


def fit_png(fit: Fit) -> bytes:
    """The largest batch by length and setting."""
    return _fit(fit, "png")


def fit_svg(fit: Fit) -> bytes:
    """As :func:`fit_png`."""
    return _fit(fit, "svg")


def figures_of(diagnosis: Diagnosis) -> Iterator[tuple[str, bytes]]:
    """Each figure for which there is something to show, as PNG and as SVG, by the name of its file."""
    with style():
        for name, panel in _panels(diagnosis, alone=True).items():
            for kind in ("png", "svg"):
                yield f"{name}.{kind}", file_of(stacked("", (), [panel]), kind)


def figure_alone(diagnosis: Diagnosis, name: str) -> Figure:
    """One of the figures that the diagnosis has."""
    with style():
        return stacked("", (), [_panels(diagnosis, alone=True)[name]])


def canvas_of(diagnosis: Diagnosis) -> Figure:
    """The verdict, and under it those of the figures that say most."""
    headline, _, why = diagnosis.verdict.sentence.partition(": ")
    with style():
        panels = _panels(diagnosis, alone=False)
        shown = [panels[name] for name in _ON_CANVAS if name in panels]
        mark = "✓" if diagnosis.fits else "✗"
        return stacked(f"{mark} {headline}", _told(diagnosis, why), shown, good=diagnosis.fits)


def _panels(diagnosis: Diagnosis, *, alone: bool) -> dict[str, Panel]:
    """The figures of this diagnosis; ``alone`` each names its colours, on one canvas the first does for all."""
    timeline = diagnosis.timeline
    stack = stack_of(timeline, _EVENTS) if timeline is not None and timeline.events else None
    panels = {"capacity": _capacity(diagnosis, None if alone else stack)}
    if stack is not None:
        key = {category.value: _named(category.value) for category in stack.columns} if alone else {}
        panels["timeline"] = Panel(
            "Memory over the steps", 3.1, lambda axes: parts.timeline(axes, diagnosis, stack), left=parts.SIZE_NAMES,
            key=key,
        )  # fmt: skip
    if diagnosis.toggles:
        rows = 1 + min(len(diagnosis.toggles), parts.MOST_TOGGLES)
        panels["toggles"] = Panel(
            "Reserved, with one thing changed", _ROW * rows, lambda axes: parts.toggles(axes, diagnosis),
            left=parts.TOGGLE_NAMES, below=0.1,
        )  # fmt: skip
    if diagnosis.modules:
        shown = diagnosis.modules[: parts.MOST_MODULES]
        panels["modules"] = Panel(
            "The modules that hold most at the peak", _ROW * len(shown), lambda axes: parts.modules(axes, diagnosis),
            left=parts.MODULE_NAMES, below=0.15, key=_held_by(shown),
        )  # fmt: skip
    found = batch_map_of(diagnosis)
    if found is not None:
        title = "Reserved by batch and length: bold was probed, all else is predicted; outlined is the target"
        panels["batches"] = Panel(
            title, 0.5 * len(found.rows), lambda axes: parts.batches(axes, found), left=parts.LENGTH_NAMES, below=0.35
        )
    return panels


def _capacity(diagnosis: Diagnosis, stack: Stack | None) -> Panel:
    """The bar, and the bytes of every part that it or the timeline shows."""
    over_time = {category.value for category in stack.columns} if stack is not None else set()
    key = {
        name: f"{_named(name)} {format_bytes(size)}"
        for name, size in diagnosis.breakdown.items()
        if name != "free" and (size or name in over_time)
    }  # fmt: skip
    budgets = len(bar.budgets_shown(diagnosis))
    place = "machine" if diagnosis.device.is_cpu else "card"
    return Panel(
        f"The {place} at the peak", bar.height_of(budgets), lambda axes: bar.capacity(axes, diagnosis),
        left=bar.LEFT, below=0.35, key=key,
    )  # fmt: skip


def _held_by(modules: tuple[ModuleUse, ...]) -> dict[str, str]:
    held = (category.value for category in Category if any(getattr(use, category.value) for use in modules))
    return {name: _named(name) for name in held}


def _named(part: str) -> str:
    return part.replace("_", " ")


def _diagnosis(diagnosis: Diagnosis, kind: str) -> bytes:
    with style():
        return file_of(canvas_of(diagnosis), kind)


def _told(diagnosis: Diagnosis, why: str) -> list[str]:
    """What was probed, the peak, why, and what to do first."""
    told = [setting_of(diagnosis), f"Peak: {peak_sum(diagnosis)}"]
    told.append(f"Why: {cause_in_a_line(diagnosis) or sentence(why)}")
    if diagnosis.plan:
        first = diagnosis.plan[0]
        costs = ", ".join(filter(None, (format_bytes(first.peak.reserved_bytes), time_of(first))))
        told.append(f"Do first: {in_words(first.change)}: {costs}")
    elif diagnosis.smallest is not None:
        least = format_bytes(diagnosis.smallest.peak.reserved_bytes)
        told.append(f"Nothing fits; the least that was found is {least}")
    if diagnosis.timeline is None:
        told.append(_NO_TIMELINE)
    elif not diagnosis.timeline.events:
        told.append(_EMPTY_TIMELINE)
    return told


def _difference(difference: Difference, kind: str) -> bytes:
    rows = sum(1 for part in difference.parts if part.delta_bytes and part.name != "free")
    sides = (("A", difference.a), ("B", difference.b))
    more = difference.figure("reserved").delta_bytes
    headline = f"B needs {format_bytes(abs(more))} {'more' if more > 0 else 'less'}" if more else "B needs the same"
    told = [sentence(difference.sentence), *(f"{name}: {side.name}" for name, side in sides), *difference.cautions]
    with style():
        panel = Panel(
            "What B holds more than A at its peak", 0.32 * max(rows, 1), lambda axes: parts.growth(axes, difference),
            left=parts.PART_NAMES, below=0.1,
        )  # fmt: skip
        return file_of(stacked(headline, told, [panel], good=more <= 0), kind)


def _fit(fit: Fit, kind: str) -> bytes:
    with style():
        headline, told, panel = largest_batches(fit)
        return file_of(stacked(headline, [told], [panel]), kind)
