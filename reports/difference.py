"""The terminal view of a difference: the verdict first, at most 25 lines where the terminal has 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memdoctor.difference import in_words, layers_together, signed, tensors_in_words
from memdoctor.names import cut
from memdoctor.records import Difference, Growth, ModuleGrowth, PhaseGrowth, Setting, Side, TensorGrowth
from memdoctor.reports.tables import clean, console, grid, label, print_labelled
from memdoctor.units import format_bytes

MOST_LINES = 25
_NAME = 40  # characters of a name at most, where several are on a line
SHOWN_FIGURES = ("allocated", "reserved", "device", "headroom")


@dataclass(frozen=True, slots=True)
class _Room:
    """How many rows of each are shown."""

    parts: int
    phases: int
    modules: int
    tensors: int


_ROOMS = (
    _Room(12, 3, 3, 3), _Room(6, 3, 3, 3), _Room(6, 2, 3, 2), _Room(5, 2, 2, 2), _Room(4, 1, 2, 1), _Room(3, 1, 1, 1),
    _Room(3, 0, 1, 0), _Room(2, 0, 0, 0),
)  # fmt: skip
"""From all to the least; the first with which the view keeps to its lines is taken."""


def print_difference(difference: Difference, *, top: int = 0) -> None:
    """Print the view to standard output; ``top`` adds so many of the modules and tensors that differ most."""
    out = console()
    for room in _ROOMS:
        with out.capture() as said:
            _print(difference, room, out)
        if len(said.get().splitlines()) <= MOST_LINES:
            break
    _print(difference, room, out)
    if top:
        _print_top(difference, top, out)


def _print(difference: Difference, room: _Room, out: Console) -> None:
    head, colon, rest = difference.sentence.partition(":")
    print_labelled(out, f"{head}{colon}", rest, style=_style(difference), indent=0)
    for caution in difference.cautions:
        print_labelled(out, "NOTE", caution, style="bold yellow")
    for name, side in (("A", difference.a), ("B", difference.b)):
        print_labelled(out, name, side_in_words(side))
    if unlike := tuple(setting for setting in difference.settings if setting.of != "environment"):
        print_labelled(out, "differs", "; ".join(map(setting_of, unlike)))
    if not difference.same:
        out.print(_figures(difference, room))
    for index, tensors in enumerate(difference.tensors[: room.tensors]):
        print_labelled(out, "tensors" if index == 0 else "", tensors_line(tensors))


def _style(difference: Difference) -> str:
    delta = difference.figure("reserved").delta_bytes
    return "bold red" if delta > 0 else "bold green" if delta < 0 or difference.same_memory else "bold"


def side_in_words(side: Side) -> str:
    """What one of the two is: its file, model, setting, card and how its figures were obtained."""
    work, how = side.workload, side.provenance
    named = [cut(name, _NAME) for name in (side.name, work.model, side.device.name, how.torch, how.transformers)]
    file, model, device, torch, transformers = named
    return (
        f"{file}: {model} ({work.task.value}), batch {work.batch_size} x {work.seq_length}, {work.precision.value}, "
        f"on {device}, {'fits' if side.fits else 'does not fit'}, peak in {side.peak.phase} of step {side.peak.step}; "
        f"{how.mode}, torch {torch}, transformers {transformers}"
    )


def setting_of(setting: Setting) -> str:
    """``batch size 8 -> 16``; sizes of the device in their units."""
    name = setting.name.removesuffix("_bytes").replace("_", " ")
    words = [
        format_bytes(value) if setting.name.endswith("_bytes") and isinstance(value, int) else in_words(value)
        for value in (setting.a, setting.b)
    ]
    return f"{'device ' if setting.of == 'device' else ''}{name} {words[0]} -> {words[1]}"


def phase_in_words(phase: PhaseGrowth) -> str:
    """``step 2, backward``; where it comes more than once in the step, which."""
    nth = f" {phase.occurrence}" if phase.occurrence > 1 else ""
    return f"step {phase.step}, {phase.name}{nth}"


def tensors_line(growth: TensorGrowth) -> str:
    """One line: the difference, what the tensors are, where they are from, and what they were."""
    operator = cut(growth.op.removeprefix("aten.").partition(".")[0])
    where = f"{cut(growth.module)}, {operator}" if growth.module else operator
    category = growth.category.value.replace("_", " ")
    return f"{signed(growth.delta_bytes)} {category} ({where}): {tensors_in_words(growth)}"


def parts_that_differ(difference: Difference) -> list[Growth]:
    """Parts of the breakdown that are not the same, the largest difference first; what is free is the headroom."""
    unlike = [part for part in difference.parts if part.delta_bytes and part.name != "free"]
    return sorted(unlike, key=lambda part: -abs(part.delta_bytes))


_Row = tuple[str, int | None, int | None, int | None]


def _figures(difference: Difference, room: _Room) -> Table:
    table = grid()
    table.add_column(overflow="fold")
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*(Text(word, style="bold") for word in ("", "", "A", "B", "B - A")))
    phases = [phase for phase in difference.phases if phase.delta_bytes != 0]
    for name, rows in (
        ("peak", [_row(difference.figure(name)) for name in SHOWN_FIGURES]),
        ("holds", map(_row, parts_that_differ(difference)[: room.parts])),
        ("phases", map(_phase_row, phases[: room.phases])),
        ("modules", map(_module_row, layers_together(difference.modules)[: room.modules])),
    ):
        _add(table, name, rows)
    return table


def _add(table: Table, name: str, rows: Iterable[_Row]) -> None:
    for index, (what, *sizes, delta) in enumerate(rows):
        told = ["-" if size is None else format_bytes(size) for size in sizes]
        told.append("-" if delta is None else signed(delta))
        table.add_row(label(name if index == 0 else ""), Text(clean(what)), *map(Text, told))


def _row(growth: Growth) -> _Row:
    return growth.name.replace("_", " "), growth.a_bytes, growth.b_bytes, growth.delta_bytes


def _phase_row(phase: PhaseGrowth) -> _Row:
    return phase_in_words(phase), phase.a_bytes, phase.b_bytes, phase.delta_bytes


def _module_row(module: ModuleGrowth) -> _Row:
    return cut(module.path) or "(no module)", module.a_bytes, module.b_bytes, module.delta_bytes


def _print_top(difference: Difference, top: int, out: Console) -> None:
    out.print(Text("the modules that differ most", style="bold"))
    for module in difference.modules[:top]:
        print_labelled(out, "", "".join(_module_line(module)))
    out.print(Text("the tensors that differ most", style="bold"))
    for tensors in difference.tensors[:top]:
        print_labelled(out, "", tensors_line(tensors))


def _module_line(module: ModuleGrowth) -> Iterator[str]:
    yield f"{signed(module.delta_bytes)} {cut(module.path) or '(no module)'}: "
    yield ", ".join(f"{name.replace('_', ' ')} {signed(delta)}" for name, delta in module.by_category.items())
