"""Who holds the memory of the peak: modules within modules, as wide as what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from markupsafe import Markup

from memdoctor.records import Category, Diagnosis, ModuleUse
from memdoctor.reports.html.svg.element import WIDE, both, element, picture, room, text, title
from memdoctor.reports.palette import COLOURS, on
from memdoctor.reports.text import cut
from memdoctor.units import format_bytes

_ROW, _STRIP, _LEVELS = 28, 6, 6
_FEWEST = 7  # letters of a name that is cut: fewer say nothing
_THINNEST = 2.0  # units: what is thinner is told together, as more
_MOST, _SHALLOW = 400, 4  # boxes, and how many levels there are at least for that


@dataclass(slots=True)
class Node:
    """A module with all that is in it, by category."""

    path: str
    held: Counter[Category] = field(default_factory=Counter)
    inner: dict[str, Node] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes of it and of all in it."""
        return self.held.total()


@dataclass(frozen=True, slots=True)
class Box:
    """A module where it is drawn, in units; ``joined``: several that are too thin to be drawn."""

    name: str
    node: Node
    x: float
    width: float
    level: int
    joined: bool = False


def tree_of(modules: tuple[ModuleUse, ...]) -> Node:
    """Modules by their paths; what belongs to none is one of its own."""
    root = Node("")
    for use in modules:
        names = use.path.split(".")[:_LEVELS] if use.path else ["(no module)"]
        node = root
        for number in range(len(names) + 1):
            for category in Category:
                if size := getattr(use, category.value):
                    node.held[category] += size
            if number < len(names):
                path = ".".join(names[: number + 1])
                node = node.inner.setdefault(names[number], Node(path))
    return root


def modules_icicle(diagnosis: Diagnosis) -> Markup | None:
    """The chart; ``None`` where nothing is held."""
    root = tree_of(diagnosis.modules)
    return both(lambda width: _draw(root, width)) if root.total else None


def _draw(root: Node, width: int) -> Markup:
    boxes = _boxes(root, width)
    levels = 1 + max(box.level for box in boxes)
    shapes = [shape for box in boxes for shape in _shapes(box)]
    largest = sorted(root.inner.values(), key=lambda node: -node.total)[:3]
    says = ", ".join(f"{cut(node.path, 60)} {format_bytes(node.total)}" for node in largest)
    name = "Memory at the peak by module" + ("" if width == WIDE else ", narrow")
    return picture(name, says, width, levels * _ROW, *shapes, *_strips(boxes))


def _boxes(root: Node, width: int) -> list[Box]:
    """Where every module is. Of more than ``_MOST`` the deepest are left out, and then the thinnest told together."""
    deepest, thinnest = _depth(root), _THINNEST
    while True:
        placed = _placed(root, "at the peak", 0.0, float(width), 0, thinnest)
        boxes = list(islice((box for box in placed if box.level < deepest), _MOST + 1))
        if len(boxes) <= _MOST:
            return boxes
        if deepest > _SHALLOW:
            deepest -= 1
        else:
            thinnest *= 1.5


def _depth(node: Node) -> int:
    return 1 + max(map(_depth, node.inner.values()), default=0)


def _placed(node: Node, name: str, x: float, width: float, level: int, thinnest: float) -> Iterator[Box]:
    """A module and what is in it, in order of the model; what is too thin to see is one box."""
    yield Box(name, node, x, width, level)
    thin: list[Node] = []
    for inner_name, inner in sorted(node.inner.items(), key=_natural):
        part = width * inner.total / node.total
        if part < thinnest:
            thin.append(inner)
            continue
        yield from _placed(inner, inner_name, x, part, level + 1, thinnest)
        x += part
    more = Node("", sum((inner.held for inner in thin), Counter[Category]()))
    if more.total:
        yield Box(f"{len(thin)} more", more, x, width * more.total / node.total, level + 1, joined=True)


def _natural(item: tuple[str, Node]) -> tuple[int, int, str]:
    """Numbered layers by their number, all else in order of its name."""
    name, _ = item
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def _shapes(box: Box) -> Iterator[Markup]:
    node = box.node
    parts = ", ".join(f"{c.value.replace('_', ' ')} {format_bytes(size)}" for c, size in node.held.most_common())
    path = f"{box.name} modules" if box.joined else node.path or "all"
    colour = None if box.joined else COLOURS[_largest(node).value]
    yield element(
        "rect", title(f"{cut(path, 200)}: {format_bytes(node.total)} ({parts})"), x=box.x, y=box.level * _ROW,
        width=box.width, height=_ROW, fill=colour or "var(--line)", stroke="var(--back)", stroke_width=1,
    )  # fmt: skip
    letters = room(box.width - 8, 11)
    if letters >= min(len(box.name), _FEWEST):
        words = f"{box.name} {format_bytes(node.total)}"
        shown = words if len(words) <= letters else cut(box.name, letters)
        yield text(shown, box.x + 4, box.level * _ROW + 15, font_size=11, fill=on(colour) if colour else "currentColor")


def _largest(node: Node) -> Category:
    return max(node.held, key=lambda category: (node.held[category], category.value))


def _strips(boxes: list[Box]) -> Iterator[Markup]:
    """Below the name of every box, what it holds by category: one shape for each category."""
    drawn: dict[Category, list[str]] = {category: [] for category in Category}
    for box in boxes:
        x, y = box.x, (box.level + 1) * _ROW - _STRIP - 0.5
        for category in Category:
            width = box.width * box.node.held[category] / box.node.total
            if width >= 0.5:
                drawn[category].append(f"M{x:.1f} {y:g}h{width:.1f}v{_STRIP}h-{width:.1f}z")
            x += width
    for category, outlines in drawn.items():
        if outlines:
            yield element(
                "path", d="".join(outlines), fill=COLOURS[category.value], stroke="var(--back)", stroke_width=0.5
            )
