"""The single figures, each on axes that it is given."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from memdoctor.levers.wording import in_words
from memdoctor.records import Category, Diagnosis, Difference
from memdoctor.reports.charts.batch_map import BatchMap
from memdoctor.reports.charts.stack import Stack
from memdoctor.reports.figures.drawing import BAND, GOOD, LINE, MARK, SOFT, TEXT, bare, bytes_axis, fitting
from memdoctor.reports.palette import COLOURS
from memdoctor.units import format_bytes

_FROM_ZERO = {"peak_allocated", "peak_reserved", "device_peak"}  # metrics that a bar from 0 shows
_WIDE_ENOUGH = 0.09  # of the bar: a part that has room for its size
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}  # behind words that cross a line
_FAR = 1.6  # a limit this many times the highest point is told, and not drawn
MOST_MODULES, MOST_TOGGLES = 12, 10


def capacity(axes: Axes, diagnosis: Diagnosis) -> None:
    """The whole card as one bar at the peak: every part, what is free or missing, and the lines not to cross."""
    total, free = diagnosis.device.total_bytes, diagnosis.breakdown.free
    whole = max(total, total - free)
    held = [(name, size) for name, size in diagnosis.breakdown.items() if name != "free"]
    begins = accumulate((size for _, size in held), initial=0)
    for (name, size), begin in zip(held, begins, strict=False):
        if size:
            axes.barh(0, size, left=begin, height=0.8, color=COLOURS[name], edgecolor="white", linewidth=0.6)
            label = f"{name.replace('_', ' ')} {format_bytes(size)}"
            if size > 2 * _WIDE_ENOUGH * whole:
                axes.text(begin + size / 2, 0, label, ha="center", va="center", fontsize=9)
    if free > 0:
        axes.barh(0, free, left=total - free, height=0.8, color="white", edgecolor=SOFT, linestyle=(0, (4, 3)))
        if free > _WIDE_ENOUGH * whole:
            axes.text(total - free / 2, 0, f"free {format_bytes(free)}", ha="center", va="center", color=SOFT)
    elif free < 0:
        axes.barh(0, -free, left=total, height=0.8, color="none", edgecolor=MARK, hatch="////", linewidth=1.2)
    _line(axes, total, f"the card: {format_bytes(total)}", MARK, above=True, whole=whole)
    for budget in diagnosis.budgets:
        if budget.metric in _FROM_ZERO and budget.limit_bytes <= whole:
            words = f"{fitting(budget.name, 30)}: {format_bytes(budget.limit_bytes)}"
            _line(axes, budget.limit_bytes, words, "#0550ae", above=False, whole=whole)
    axes.set_xlim(0, whole)
    axes.set_ylim(-0.75, 0.75)
    axes.set_yticks([])
    bytes_axis(axes.xaxis, whole)
    bare(axes)


def _line(axes: Axes, at: int, words: str, colour: str, *, above: bool, whole: int) -> None:
    axes.plot([at, at], [-0.5, 0.5], color=colour, linewidth=1.6, linestyle="-" if above else "--", clip_on=False)
    side = "right" if at > whole / 2 else "left"
    y, va = (0.5, "bottom") if above else (-0.5, "top")
    axes.text(at, y, f" {words} ", ha=side, va=va, fontsize=8, color=colour)


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
    top = int(1.12 * max(highest, limit if near else 0))
    words = f"PyTorch can have {format_bytes(limit)}"
    if near:
        axes.axhline(limit, color=MARK, linewidth=1.3)
        axes.text(stack.of, limit, f"{words} ", ha="right", va="bottom", color=MARK, fontsize=8)
    else:
        axes.text(stack.of, 0.93 * top, f"{words}: above this chart ", ha="right", va="top", color=MARK, fontsize=8)
    _phases(axes, stack, top)
    _instants(axes, diagnosis, stack, int(below[stack.events.index(stack.peak)]))
    axes.set_xlim(0, stack.of)
    axes.set_ylim(0, top)
    axes.set_xticks([])
    some = f"{len(stack.events):,} of {stack.of:,} events, each the highest of its neighbours"
    events = some if stack.thinned else f"{stack.of:,} events"
    axes.set_xlabel(f"{events}; dashed: reserved", fontsize=8, color=SOFT)
    bytes_axis(axes.yaxis, top)
    bare(axes, "left", "bottom")


def _phases(axes: Axes, stack: Stack, top: int) -> None:
    for number, phase in enumerate(stack.phases):
        if number % 2 == 0:
            axes.axvspan(phase.begin, phase.end, color=BAND, zorder=0, linewidth=0)
        share = (phase.end - phase.begin) / stack.of
        words = f"{phase.name.value} {phase.step}" if phase.step else phase.name.value
        if share * 150 > len(words):
            axes.text(phase.begin, top, f" {words}", ha="left", va="top", fontsize=7.5, color=SOFT)


def _instants(axes: Axes, diagnosis: Diagnosis, stack: Stack, size: int) -> None:
    axes.plot([stack.peak], [size], marker="o", markersize=7, markerfacecolor="white", markeredgecolor=MARK)
    right = stack.peak > stack.of / 2
    axes.annotate(
        f"peak {format_bytes(size)}", (stack.peak, size), xytext=(-8 if right else 8, 3), textcoords="offset points",
        ha="right" if right else "left", fontsize=8.5, fontweight="bold",
    )  # fmt: skip
    if diagnosis.ran_out is not None and diagnosis.ran_out.event is not None:
        at = diagnosis.ran_out.event
        axes.axvline(at, color=MARK, linewidth=1, linestyle=":")
        axes.annotate(
            "✗ out of memory", (at, 0), xytext=(3, 6), textcoords="offset points", color=MARK, fontsize=8,
            bbox=_PAPER,
        )  # fmt: skip


def toggles(axes: Axes, diagnosis: Diagnosis) -> None:
    """The reserved peak as it is and with each thing changed, beside what PyTorch can have."""
    shown = [(fitting(in_words(one.change), 34), one.peak.reserved_bytes, one.fits) for one in diagnosis.toggles]
    rows = [("as it is", diagnosis.peak.reserved_bytes, diagnosis.fits), *shown[:MOST_TOGGLES]]
    limit = diagnosis.device.allocator_limit_bytes
    highest = max(*(size for _, size, _ in rows), 1)
    for row, (_, size, fits) in enumerate(rows):
        axes.barh(row, size, height=0.65, color="#8c9bab" if fits else "#e3a3ab", hatch="" if fits else "///")
        mark, colour = ("✓", GOOD) if fits else ("✗", MARK)
        axes.text(size, row, f" {format_bytes(size)} {mark}", va="center", fontsize=8.5, color=colour, bbox=_PAPER)
    if limit <= _FAR * highest:
        axes.axvline(limit, color=MARK, linewidth=1.3, zorder=0)
        words = f"PyTorch can have {format_bytes(limit)}"
        below = axes.get_xaxis_transform()
        axes.text(limit, -0.02, words, ha="center", va="top", fontsize=8, color=MARK, transform=below)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(highest, limit if limit <= _FAR * highest else 0))
    axes.set_xticks([])
    bare(axes)


def modules(axes: Axes, diagnosis: Diagnosis) -> None:
    """The modules that hold most at the peak, by category."""
    rows = diagnosis.modules[:MOST_MODULES]
    for row, use in enumerate(rows):
        begin = 0
        for category in Category:
            size = getattr(use, category.value)
            axes.barh(row, size, left=begin, height=0.7, color=COLOURS[category.value])
            begin += size
        axes.text(begin, row, f" {format_bytes(begin)}", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [fitting(use.path or "(no module)", 56) for use in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2 * max((use.total for use in rows), default=1))
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
                column + 0.5,
                row + 0.5,
                f"{format_bytes(size)}\n{mark}",
                ha="center",
                va="center",
                fontsize=8,
                fontweight="bold" if cell.probed else "normal",
            )
            if cell.last:
                axes.plot([column + 1, column + 1], [row, row + 1], color=MARK, linewidth=2.5)
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
