"""Who holds the memory of the peak: modules within modules, as wide as what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from markupsafe import Markup

from memdoctor.records import Category, Diagnosis, ModuleUse
from memdoctor.reports.html.svg.element import WIDE, both, element, picture, room, text, title
from memdoctor.reports.palette import COLOURS, on
from memdoctor.reports.text import cut
from memdoctor.units import format_bytes

_ROW, _LEVELS = 30, 6
_FEWEST = 7  # letters of a name that is cut: fewer say nothing
_THINNEST = 2.0  # units: what is thinner is told together, as more


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
    levels = _depth(root)
    shapes = list(_node(root, "at the peak", 0.0, float(width), 0))
    largest = sorted(root.inner.values(), key=lambda node: -node.total)[:3]
    says = ", ".join(f"{cut(node.path, 60)} {format_bytes(node.total)}" for node in largest)
    name = "Memory at the peak by module" + ("" if width == WIDE else ", narrow")
    return picture(name, says, width, levels * _ROW, *shapes)


def _depth(node: Node) -> int:
    return 1 + max(map(_depth, node.inner.values()), default=0)


def _node(node: Node, name: str, x: float, width: float, level: int) -> Iterator[Markup]:
    largest = max(node.held, key=lambda category: (node.held[category], category.value))
    colour = COLOURS[largest.value]
    parts = ", ".join(f"{c.value.replace('_', ' ')} {format_bytes(size)}" for c, size in node.held.most_common())
    yield element(
        "rect", title(f"{node.path or 'all'}: {format_bytes(node.total)} ({parts})"), x=x, y=level * _ROW, width=width,
        height=_ROW, fill=colour, stroke="var(--back)", stroke_width=1,
    )  # fmt: skip
    letters = room(width - 8, 11)
    words = f"{name} {format_bytes(node.total)}"
    if letters >= min(len(name), _FEWEST):
        shown = words if len(words) <= letters else cut(name, letters)
        yield text(shown, x + 4, level * _ROW + 19, font_size=11, fill=on(colour))
    yield from _within(node, x, width, level + 1)


def _natural(item: tuple[str, Node]) -> tuple[int, int, str]:
    """Numbered layers by their number, all else in order of its name."""
    name, _ = item
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def _within(node: Node, x: float, width: float, level: int) -> Iterator[Markup]:
    """What is in it, in order of the model; what is too thin to see is one box that says how many it is."""
    thin: list[Node] = []
    for name, inner in sorted(node.inner.items(), key=_natural):
        part = width * inner.total / node.total
        if part < _THINNEST:
            thin.append(inner)
            continue
        yield from _node(inner, name, x, part, level)
        x += part
    if thin:
        total = sum(inner.total for inner in thin)
        yield element(
            "rect", title(f"{len(thin)} more modules, {format_bytes(total)}"), x=x, y=level * _ROW,
            width=width * total / node.total, height=_ROW, class_="free",
        )  # fmt: skip
