"""Memory over the steps, by category, with the phases, the peak and the lines not to cross."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from memdoctor.records import Diagnosis, Phase
from memdoctor.reports.charts.stack import MOST, Stack, stack_of
from memdoctor.reports.html.svg.element import NARROW, WIDE, both, element, picture, room, text, title
from memdoctor.reports.palette import COLOURS
from memdoctor.units import GIB, KIB, MIB, format_bytes

_TOP, _BOTTOM = 34, 22
_FAR = 1.6  # a limit this many times the highest point is told, and not drawn: the chart would be all empty
_ROOM = 1.2  # times the highest point, for the words about a limit that is not drawn
_TICKS = 5


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where bytes and events are on the chart."""

    left: float
    right: float
    top: float
    bottom: float
    events: int
    highest: int

    def x(self, event: float) -> float:
        return self.left + (self.right - self.left) * event / self.events

    def y(self, size: float) -> float:
        return self.bottom - (self.bottom - self.top) * size / self.highest


def timeline_chart(diagnosis: Diagnosis) -> Markup | None:
    """The chart; ``None`` where the file has no timeline."""
    timeline = diagnosis.timeline
    if timeline is None or not timeline.events:
        return None
    wide, narrow = stack_of(timeline), stack_of(timeline, MOST // 4)
    return both(lambda width: _draw(diagnosis, wide if width == WIDE else narrow, width))


def timeline_data(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """What the chart that zooms needs, for JavaScript; ``None`` where the file has no timeline."""
    timeline = diagnosis.timeline
    if timeline is None or not timeline.events:
        return None
    stack = stack_of(timeline, 2 * MOST)
    return {
        "events": list(stack.events),
        "of": stack.of,
        "series": [
            {"name": category.value.replace("_", " "), "colour": COLOURS[category.value], "bytes": list(column)}
            for category, column in stack.columns.items()
        ],
        "reserved": list(stack.reserved),
        "limit": diagnosis.device.allocator_limit_bytes,
        "peak": stack.peak,
        "ranOut": diagnosis.ran_out.event if diagnosis.ran_out else None,
        "phases": [[phase.step, phase.name.value, phase.begin, phase.end] for phase in stack.phases],
    }


def _draw(diagnosis: Diagnosis, stack: Stack, width: int) -> Markup:
    height = 320 if width == WIDE else 260
    limit = diagnosis.device.allocator_limit_bytes
    top = max(*stack.reserved, *(sum(row) for row in zip(*stack.columns.values(), strict=True)), 1)
    near = limit <= _FAR * top
    highest = int(1.06 * max(top, limit)) if near else int(_ROOM * top)
    frame = _Frame(62, width - 6, _TOP, height - _BOTTOM, stack.of, highest)
    shapes = [
        *_bands(stack.phases, frame), *_axis(frame), *_areas(stack, frame), _reserved(stack, frame),
        *_limit(limit, frame, near=near), *_ran_out(diagnosis, frame), *_peak(diagnosis, stack, frame),
        text(_caption(stack), width - 6, height - 6, text_anchor="end", class_="soft"),
    ]  # fmt: skip
    peak = diagnosis.peak
    says = f"the peak is {format_bytes(peak.allocated_bytes)} allocated, in {peak.phase} of step {peak.step}"
    return picture("Memory over the steps", says, width, height, *shapes, links=True)


def _caption(stack: Stack) -> str:
    if stack.thinned:
        return f"{len(stack.events):,} of {stack.of:,} events, each the highest of its neighbours"
    return f"{stack.of:,} events, one after another"


def _bands(phases: tuple[Phase, ...], frame: _Frame) -> Iterator[Markup]:
    for number, phase in enumerate(phases):
        x, width = frame.x(phase.begin), frame.x(phase.end) - frame.x(phase.begin)
        words = f"step {phase.step}, {phase.name.value}" if phase.step else phase.name.value
        yield element(
            "rect", title(words), x=x, y=_TOP - 20, width=width, height=frame.bottom - _TOP + 20,
            class_=f"band{number % 2}",
        )  # fmt: skip
        shown = next((label for label in (words, phase.name.value) if len(label) <= room(width - 4, 11)), "")
        if shown:
            yield text(shown, x + 3, _TOP - 8, font_size=11)


def _axis(frame: _Frame) -> Iterator[Markup]:
    unit, name = next(pair for pair in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B")) if frame.highest >= pair[0])
    step = _step(frame.highest / unit / _TICKS)
    tick = 0.0
    while tick * unit <= frame.highest:
        y = frame.y(tick * unit)
        yield element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="tick")
        yield text(f"{tick:g} {name}", frame.left - 5, y + 4, text_anchor="end", font_size=11)
        tick += step


def _step(rough: float) -> float:
    """A round number near ``rough``, not below it: 1, 2 or 5 times a power of ten."""
    power = 1.0
    while power * 10 <= rough:
        power *= 10
    while power > rough and power > 1e-3:
        power /= 10
    return next((power * times for times in (1, 2, 5) if power * times >= rough), power * 10)


def _areas(stack: Stack, frame: _Frame) -> Iterator[Markup]:
    below = [0] * len(stack.events)
    for category, column in stack.columns.items():
        above = [low + more for low, more in zip(below, column, strict=True)]
        outline = _stairs(stack, above, frame) + _stairs(stack, below, frame, back=True)
        words = f"{category.value.replace('_', ' ')}, at most {format_bytes(max(column))}"
        yield element("path", title(words), d=f"{outline}Z", fill=COLOURS[category.value], class_="area")
        below = above


def _stairs(stack: Stack, sizes: Sequence[int], frame: _Frame, *, back: bool = False) -> str:
    """A line that holds each size until the next event that is shown; ``back``: from its end to its begin."""
    ys = [f"{frame.y(size):.1f}" for size in sizes]
    changes = [at for at, y in enumerate(ys) if at == 0 or y != ys[at - 1]]  # most are flat for long: less to write
    xs = [f"{frame.x(stack.events[at]):.1f}" for at in changes] + [f"{frame.x(stack.of):.1f}"]
    ys = [ys[at] for at in changes]
    if back:
        return f"L{xs[-1]} {ys[-1]}" + "".join(f"V{y}H{x}" for x, y in zip(xs[-2::-1], ys[::-1], strict=True))
    return f"M{xs[0]} {ys[0]}" + "".join(f"V{y}H{x}" for x, y in zip(xs[1:], ys, strict=True))


def _reserved(stack: Stack, frame: _Frame) -> Markup:
    words = f"reserved, at most {format_bytes(max(stack.reserved))}"
    return element("path", title(words), d=_stairs(stack, stack.reserved, frame), class_="reserved")


def _limit(limit: int, frame: _Frame, *, near: bool) -> Iterator[Markup]:
    words = f"PyTorch can have {format_bytes(limit)}"
    if not near:
        yield text(f"{words}: above this chart", frame.left + 6, frame.top + 12)
        return
    y = frame.y(limit)
    yield element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="capacity")
    yield text(words, frame.left + 6, y - 5, class_="halo")


def _ran_out(diagnosis: Diagnosis, frame: _Frame) -> Iterator[Markup]:
    at = diagnosis.ran_out.event if diagnosis.ran_out else None
    if at is None:
        return
    x = frame.x(at)
    end = x > (frame.left + frame.right) / 2
    yield element("line", x1=x, x2=x, y1=frame.top, y2=frame.bottom, class_="stop")
    yield text(
        "✗ out of memory", x - 4 if end else x + 4, frame.bottom - 8, text_anchor="end" if end else "start",
        class_="halo",
    )  # fmt: skip


def _peak(diagnosis: Diagnosis, stack: Stack, frame: _Frame) -> Iterator[Markup]:
    size = sum(column[stack.events.index(stack.peak)] for column in stack.columns.values())
    x, y = frame.x(stack.peak), frame.y(size)
    end = x > (frame.left + frame.right) / 2
    peak = diagnosis.peak
    words = f"peak {format_bytes(size)}, step {peak.step}, {peak.phase}"
    shown = words if frame.right > NARROW else f"peak {format_bytes(size)}"
    label = text(shown, x - 9 if end else x + 9, y - 6, text_anchor="end" if end else "start", class_="halo")
    dot = element("circle", title("to the tensors alive at the peak"), cx=x, cy=y, r=5.0, class_="dot")
    yield element("a", dot, label, href="#peak-tensors", class_="peak", aria_label=f"{words}: the tensors alive then")
