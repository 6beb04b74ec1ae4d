"""A report on one canvas that reads well in a pull request, and each figure alone."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from memdoctor.levers.wording import in_words
from memdoctor.records import Diagnosis, Difference, Fit
from memdoctor.reports.advice import time_of
from memdoctor.reports.charts.batch_map import batch_map_of
from memdoctor.reports.charts.stack import stack_of
from memdoctor.reports.checklist import cause_in_a_line
from memdoctor.reports.figures import parts
from memdoctor.reports.figures.drawing import GOOD, MARK, SOFT, TEXT, file_of, fitting, style
from memdoctor.reports.figures.fits import largest_batches
from memdoctor.reports.palette import COLOURS
from memdoctor.reports.text import cut, sentence
from memdoctor.reports.wording import peak_sum, setting_of
from memdoctor.units import format_bytes

WIDTH = 12.0  # inches: 1800 pixels
_LETTERS = 150  # of a line over the whole width
_TOGGLES, _BATCHES = (
    "Reserved, with one thing changed",
    "Reserved by batch and length: bold was probed, all else is predicted; outlined is the target",
)  # fmt: skip
_WITHOUT_PARTS = {_TOGGLES, _BATCHES, ""}  # titles of figures that show no category, and need no legend of them
Draw = Callable[[Axes], None]


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
        for name, (title, height, draw) in _panels(diagnosis).items():
            for kind in ("png", "svg"):
                yield f"{name}.{kind}", file_of(_stacked("", [(title, height, draw)]), kind)


def _panels(diagnosis: Diagnosis) -> dict[str, tuple[str, float, Draw]]:
    """Title, height in inches and drawing of each figure of this diagnosis."""
    panels: dict[str, tuple[str, float, Draw]] = {
        "capacity": ("The card at the peak", 1.1, lambda axes: parts.capacity(axes, diagnosis))
    }
    timeline = diagnosis.timeline
    if timeline is not None and timeline.events:
        stack = stack_of(timeline, 1200)
        panels["timeline"] = ("Memory over the steps", 3.6, lambda axes: parts.timeline(axes, diagnosis, stack))
    if diagnosis.toggles:
        rows = 1 + min(len(diagnosis.toggles), parts.MOST_TOGGLES)
        panels["toggles"] = (_TOGGLES, 0.3 * rows, lambda axes: parts.toggles(axes, diagnosis))
    if diagnosis.modules:
        rows = min(len(diagnosis.modules), parts.MOST_MODULES)
        title = "The modules that hold most at the peak"
        panels["modules"] = (title, 0.3 * rows, lambda axes: parts.modules(axes, diagnosis))
    found = batch_map_of(diagnosis)
    if found is not None:
        panels["batches"] = (_BATCHES, 0.55 * len(found.rows), lambda axes: parts.batches(axes, found))
    return panels


def _diagnosis(diagnosis: Diagnosis, kind: str) -> bytes:
    panels = _panels(diagnosis)
    with style():
        shown = [panels[name] for name in ("capacity", "timeline", "toggles") if name in panels]
        figure = _stacked(_said(diagnosis), shown, good=diagnosis.fits, sizes=dict(diagnosis.breakdown.items()))
        return file_of(figure, kind)


def _said(diagnosis: Diagnosis) -> str:
    """The verdict in its first line, then what was probed, why, and what to do first."""
    headline, _, why = diagnosis.verdict.sentence.partition(": ")
    lines = [f"{'✓' if diagnosis.fits else '✗'} {headline}", setting_of(diagnosis), f"Peak: {peak_sum(diagnosis)}"]
    lines.append(f"Why: {cause_in_a_line(diagnosis) or sentence(why)}")
    if diagnosis.plan:
        first = diagnosis.plan[0]
        costs = ", ".join(filter(None, (format_bytes(first.peak.reserved_bytes), time_of(first))))
        lines.append(f"Do first: {in_words(first.change)}: {costs}")
    elif diagnosis.smallest is not None:
        lines.append(
            f"Nothing fits; the least that was found is {format_bytes(diagnosis.smallest.peak.reserved_bytes)}"
        )
    if diagnosis.timeline is None:
        lines.append("No timeline: the file was written by memdoctor 0.1.")
    return "\n".join(line for part in lines for line in textwrap.wrap(cut(part, 3 * _LETTERS), _LETTERS))


def _difference(difference: Difference, kind: str) -> bytes:
    rows = sum(1 for part in difference.parts if part.delta_bytes and part.name != "free")
    sides = (("A", difference.a), ("B", difference.b))
    more = difference.figure("reserved").delta_bytes
    headline = f"B needs {format_bytes(abs(more))} {'more' if more > 0 else 'less'}" if more else "B needs the same"
    told = [
        headline,
        sentence(difference.sentence),
        *(f"{name}: {fitting(side.name, 100)}" for name, side in sides),
        *difference.cautions,
    ]
    words = "\n".join(line for part in told for line in textwrap.wrap(cut(part, 3 * _LETTERS), _LETTERS))
    with style():
        panel = (
            "What B holds more than A at its peak",
            0.35 * max(rows, 1),
            lambda axes: parts.growth(axes, difference),
        )
        figure = _stacked(words, [panel], good=more <= 0)
        return file_of(figure, kind)


def _fit(fit: Fit, kind: str) -> bytes:
    with style():
        title, height, draw = largest_batches(fit)
        return file_of(_stacked(title, [("", height, draw)]), kind)


def _stacked(
    words: str,
    panels: list[tuple[str, float, Draw]],
    *,
    good: bool | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Figure:  # fmt: skip
    """Words above panels, one below the other, each of its height; what is in colour has its legend at the end.

    ``sizes`` are told in the legend: what is a thin stripe of the card has its figure there.
    """
    lines = words.split("\n") if words else []
    head = (0.42 + 0.19 * (len(lines) - 1) + 0.15) if lines else 0.1
    gaps = [0.55] * len(panels)
    foot = 0.55
    height = head + sum(inches + gap for (_, inches, _), gap in zip(panels, gaps, strict=True)) + foot
    figure = Figure(figsize=(WIDTH, height))
    if lines:
        colour = TEXT if good is None else GOOD if good else MARK
        figure.text(0.02, 1 - 0.12 / height, lines[0], fontsize=15, fontweight="bold", color=colour, va="top")
        figure.text(0.02, 1 - 0.47 / height, "\n".join(lines[1:]), fontsize=9, va="top", linespacing=1.4)
    top = height - head
    for title, inches, draw in panels:
        top -= 0.35
        left = 0.24 if title.startswith((_TOGGLES, "What B")) or not title else 0.075
        left = 0.36 if title.startswith("The modules") else left
        axes = figure.add_axes((left, (top - inches) / height, 0.98 - left, inches / height))
        figure.text(0.02, (top + 0.1) / height, title, fontsize=10, fontweight="bold", va="bottom")
        draw(axes)
        top -= inches + 0.2
    if any(title not in _WITHOUT_PARTS for title, _, _ in panels):
        _legend(figure, height, sizes or {})
    return figure


def _legend(figure: Figure, height: float, sizes: Mapping[str, int]) -> None:
    names = [name for name in COLOURS if sizes.get(name, 1)]
    labels = [" ".join([name.replace("_", " "), *([format_bytes(sizes[name])] if sizes else [])]) for name in names]
    named = [Patch(facecolor=COLOURS[name], label=label) for name, label in zip(names, labels, strict=True)]
    figure.legend(
        handles=named, loc="lower left", bbox_to_anchor=(0.012, 0.02 / height), ncols=5 if sizes else len(named),
        fontsize=7.5, frameon=False, handlelength=1, handletextpad=0.4, columnspacing=1.1, labelcolor=SOFT,
    )  # fmt: skip
