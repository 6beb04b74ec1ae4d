"""The single figures, each on axes that it is given."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from memdoctor.levers.wording import in_words
from memdoctor.records import Category, Diagnosis, Difference
from memdoctor.reports.charts.batch_map import BatchMap
from memdoctor.reports.charts.stack import Stack
from memdoctor.reports.figures.drawing import BAND, GOOD, LINE, MARK, PAPER, SIZE, SOFT, TEXT, bare, bytes_axis
from memdoctor.reports.figures.layout import SIDE, WIDTH
from memdoctor.reports.figures.lettering import fitting, width_of
from memdoctor.reports.palette import COLOURS
from memdoctor.units import format_bytes

_FAR = 1.6  # a limit this many times the highest point is told above a timeline, and not drawn
_VERY_FAR = 5  # likewise of toggles, whose bars say their size beside them
_SMALL = 7.5  # points: names of phases
_NAME = 9  # points: of rows
MOST_MODULES, MOST_TOGGLES = 12, 10
SIZE_NAMES, TOGGLE_NAMES, MODULE_NAMES, LENGTH_NAMES, PART_NAMES = 0.65, 2.3, 4.0, 1.0, 1.6
"""Inches for what stands left of each figure."""


def _limit(axes: Axes, words: str) -> None:
    """What PyTorch can have, said above the right end of a figure, where nothing is drawn."""
    axes.annotate(
        words, (1, 1), xycoords="axes fraction", xytext=(0, 4), textcoords="offset points", ha="right", va="bottom",
        color=MARK, fontsize=SIZE,
    )  # fmt: skip


def timeline(axes: Axes, diagnosis: Diagnosis, stack: Stack) -> None:
    """Memory over the steps, by category, with the phases, the peak, and where it ran out."""
    edges = np.array([*stack.events, stack.of], dtype=float)
    below = np.zeros(len(stack.events))
    for category, column in stack.columns.items():
        above = below + np.array(column, dtype=float)
        axes.stairs(above, edges, baseline=below, fill=True, color=COLOURS[category.value], linewidth=0)
        below = above
    axes.stairs(np.array(stack.reserved, dtype=float), edges, baseline=None, color=TEXT, linewidth=0.9, linestyle="--")
    limit, highest = diagnosis.device.allocator_limit_bytes, max(*stack.reserved, int(below.max()))
    near = limit <= _FAR * highest
    top = int(1.14 * max(highest, limit if near else 0, 1))
    if near:
        axes.axhline(limit, color=MARK, linewidth=1.3)
    _limit(axes, f"PyTorch can have {format_bytes(limit)}{': the line' if near else ': above this chart'}")
    _phases(axes, stack, top)
    _instants(axes, diagnosis, stack, int(below[stack.events.index(stack.peak)]))
    axes.set_xlim(0, stack.of)
    axes.set_ylim(0, top)
    axes.set_xticks([])
    some = f"{len(stack.events):,} of {stack.of:,} events, each the highest of its neighbours"
    events = some if stack.thinned else f"{stack.of:,} events"
    axes.set_xlabel(f"dashed: reserved; {events}", fontsize=8, color=SOFT)
    bytes_axis(axes.yaxis, top)
    bare(axes, "left", "bottom")


def _phases(axes: Axes, stack: Stack, top: int) -> None:
    for number, phase in enumerate(stack.phases):
        if number % 2 == 0:
            axes.axvspan(phase.begin, phase.end, color=BAND, zorder=0, linewidth=0)
        room = (phase.end - phase.begin) / stack.of * (WIDTH - SIZE_NAMES - SIDE)
        full = f"{phase.name.value} {phase.step}" if phase.step else phase.name.value
        words = next((each for each in (full, phase.name.value) if width_of(f" {each}", _SMALL) < room), None)
        if words is not None:
            axes.text(phase.begin, top, f" {words}", ha="left", va="top", fontsize=_SMALL, color=SOFT)


def _instants(axes: Axes, diagnosis: Diagnosis, stack: Stack, size: int) -> None:
    axes.plot([stack.peak], [size], marker="o", markersize=7, markerfacecolor="white", markeredgecolor=MARK)
    right = stack.peak > stack.of / 2
    axes.annotate(
        f"peak {format_bytes(size)}", (stack.peak, size), xytext=(-8 if right else 8, 3), textcoords="offset points",
        ha="right" if right else "left", fontsize=8.5, fontweight="bold",
    )  # fmt: skip
    if diagnosis.ran_out is not None and diagnosis.ran_out.event is not None:
        at = diagnosis.ran_out.event
        axes.axvline(at, color=MARK, linewidth=1, linestyle=":", ymax=0.93)  # below the phases' names
        axes.annotate(
            "✗ out of memory", (at, 0), xytext=(3, 6), textcoords="offset points", color=MARK, fontsize=8,
            bbox=PAPER,
        )  # fmt: skip


def toggles(axes: Axes, diagnosis: Diagnosis) -> None:
    """The reserved peak as it is and with each thing changed, beside what PyTorch can have."""
    room = TOGGLE_NAMES - SIDE - 0.1
    shown = [(fitting(in_words(one.change), room, _NAME), one.peak, one.fits) for one in diagnosis.toggles]
    rows = [("as it is", diagnosis.peak, diagnosis.fits), *shown[:MOST_TOGGLES]]
    limit = diagnosis.device.allocator_limit_bytes
    highest = max(1, *(peak.reserved_bytes for _, peak, _ in rows))
    near = limit <= _VERY_FAR * highest
    wide = 1.25 * max(highest, limit if near else 0)
    for row, (_, peak, fits) in enumerate(rows):
        size = peak.reserved_bytes
        axes.barh(row, size, height=0.68, color="#8c9bab" if fits else "#e3a3ab", hatch="" if fits else "///")
        words = f" {format_bytes(size)} {'✓' if fits else '✗'} "
        ends = size + wide * width_of(words, SIZE) / (WIDTH - TOGGLE_NAMES - SIDE)
        crosses = near and size <= limit < ends  # then the words are on the bar
        axes.text(
            size, row, words.rstrip() if not crosses else words, va="center", ha="right" if crosses else "left",
            fontsize=SIZE, color=TEXT if crosses else GOOD if fits else MARK, bbox=None if crosses else PAPER,
        )  # fmt: skip
    if near:
        axes.axvline(limit, color=MARK, linewidth=1.3)
    _limit(axes, f"PyTorch can have {format_bytes(limit)}{': the line' if near else ': beyond this chart'}")
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, wide)
    axes.set_xticks([])
    bare(axes)


def modules(axes: Axes, diagnosis: Diagnosis) -> None:
    """The modules that hold most at the peak, by category."""
    rows, room = diagnosis.modules[:MOST_MODULES], MODULE_NAMES - SIDE - 0.1
    for row, use in enumerate(rows):
        begin = 0
        for category in Category:
            size = getattr(use, category.value)
            axes.barh(row, size, left=begin, height=0.7, color=COLOURS[category.value])
            begin += size
        axes.text(begin, row, f" {format_bytes(begin)}", va="center", fontsize=SIZE)
    axes.set_yticks(range(len(rows)), [fitting(use.path or "(no module)", room, _NAME) for use in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, 1.2 * max(1, *(use.total for use in rows)))
    axes.set_xticks([])
    bare(axes)


def batches(axes: Axes, found: BatchMap) -> None:
    """What fits, by batch and length; the line is where it stops to fit, the outlined cell was probed."""
    for row, (_, cells) in enumerate(reversed(found.rows)):
        for column, cell in enumerate(cells):
            if cell is None:
                continue
            item = cell.prediction
            colour, mark = ("#d8efe0", "✓") if item.fits else ("#f9d9dd", "✗")
            axes.add_patch(_box(column, row, facecolor=colour, edgecolor="white", linewidth=1))
            size = item.allocated_bytes if item.reserved_bytes is None else item.reserved_bytes
            axes.text(
                column + 0.5, row + 0.5, f"{format_bytes(size)}\n{mark}", ha="center", va="center", fontsize=8,
                fontweight="bold" if cell.probed else "normal",
            )  # fmt: skip
            if cell.last:
                axes.plot([column + 1, column + 1], [row, row + 1], color=MARK, linewidth=2.5, zorder=6)
            if cell.current:
                axes.add_patch(_box(column, row, facecolor="none", edgecolor=TEXT, linewidth=2, zorder=5))
    axes.set_xlim(0, len(found.batches))
    axes.set_ylim(len(found.rows), 0)
    axes.set_xticks([n + 0.5 for n in range(len(found.batches))], [f"batch {batch}" for batch in found.batches])
    axes.set_yticks([n + 0.5 for n in range(len(found.rows))], [f"{length} tokens" for length, _ in found.rows[::-1]])
    bare(axes)


def _box(column: int, row: int, **look: Any) -> Rectangle:
    return Rectangle((column, row), 1, 1, **look)


def growth(axes: Axes, difference: Difference) -> None:
    """What B holds more or less than A, part by part; what is free is left out, it follows."""
    rows = [part for part in difference.parts if part.delta_bytes and part.name != "free"]
    most = max((abs(part.delta_bytes) for part in rows), default=1)
    for row, part in enumerate(rows):
        axes.barh(row, part.delta_bytes, height=0.7, color=COLOURS[part.name])
        sign = "+" if part.delta_bytes > 0 else "-"
        side = "left" if part.delta_bytes > 0 else "right"
        words = f" {sign}{format_bytes(abs(part.delta_bytes))} "
        axes.text(part.delta_bytes, row, words, va="center", ha=side, fontsize=8.5)
    axes.axvline(0, color=LINE, linewidth=1)
    axes.set_yticks(range(len(rows)), [part.name.replace("_", " ") for part in rows])
    axes.invert_yaxis()
    axes.set_xlim(-1.5 * most, 1.5 * most)
    axes.set_xticks([])
    bare(axes)
