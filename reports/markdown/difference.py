"""A difference as Markdown: the verdict first, what keeps the two from being alike, and what grew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memdoctor.difference import in_words, layers_together, signed, tensors_in_words
from memdoctor.records import Difference, Growth, ModuleGrowth, PhaseGrowth, Side
from memdoctor.reports.difference import SHOWN_FIGURES, parts_that_differ, phase_in_words
from memdoctor.reports.markdown.blocks import bar, details, document, table
from memdoctor.reports.markdown.environment import environment
from memdoctor.reports.markdown.text import code, text
from memdoctor.units import format_bytes


def difference_markdown(difference: Difference) -> bytes:
    """The whole document."""
    return document(_blocks(difference))


def _blocks(difference: Difference) -> Iterator[str]:
    head, _, rest = difference.sentence.partition(": ")
    yield f"### {text(head)}"
    yield text(rest)
    for caution in difference.cautions:
        yield f"> **Note:** {text(caution)}"
    yield _sides(difference)
    if difference.settings:
        rows = [
            (setting.of, code(setting.name), text(in_words(setting.a), 300), text(in_words(setting.b), 300))
            for setting in difference.settings
        ]
        yield table(("differs in", "setting", "A", "B"), rows, most=60)
    if not difference.same:
        yield _growths("peak", [difference.figure(name) for name in SHOWN_FIGURES])
        yield _growths("part", parts_that_differ(difference))
    yield details("Phases", _phases(difference.phases))
    yield details("Modules", _modules(layers_together(difference.modules)))
    yield details("Tensors", _tensors(difference))
    for name, side in (("A", difference.a), ("B", difference.b)):
        yield environment(side.workload, side.device, side.provenance, summary=f"Environment and settings of {name}")


def _sides(difference: Difference) -> str:
    rows = [(f"**{name}**", *_side(side)) for name, side in (("A", difference.a), ("B", difference.b))]
    return table(("", "file", "model", "batch", "device", "how", "torch", "peak in", "fits"), rows)


def _side(side: Side) -> tuple[str, ...]:
    work, how = side.workload, side.provenance
    return (
        code(side.name), code(work.model), f"{work.batch_size} x {work.seq_length}", text(side.device.name),
        text(how.mode), text(how.torch), f"{text(side.peak.phase)}, step {side.peak.step}",
        "yes" if side.fits else "no",
    )  # fmt: skip


def _growths(what: str, growths: Sequence[Growth]) -> str:
    most = max((abs(growth.delta_bytes) for growth in growths), default=0)
    rows = [
        (
            growth.name.replace("_", " "), format_bytes(growth.a_bytes), format_bytes(growth.b_bytes),
            signed(growth.delta_bytes), bar(growth.delta_bytes, most),
        )
        for growth in growths
    ]  # fmt: skip
    return table((what, "A", "B", "B - A", ""), rows, figures="lrrrl")


def _phases(phases: Sequence[PhaseGrowth]) -> str:
    rows = [
        (text(phase_in_words(phase)), _size(phase.a_bytes), _size(phase.b_bytes), _delta(phase.delta_bytes))
        for phase in phases
        if phase.delta_bytes != 0
    ]
    return table(("phase", "A", "B", "B - A"), rows, figures="lrrr")


def _size(size: int | None) -> str:
    return "not there" if size is None else format_bytes(size)


def _delta(delta: int | None) -> str:
    return "" if delta is None else signed(delta)


def _modules(modules: Sequence[ModuleGrowth]) -> str:
    rows = [
        (
            code(module.path) or "(no module)", format_bytes(module.a_bytes), format_bytes(module.b_bytes),
            signed(module.delta_bytes),
            ", ".join(f"{name.replace('_', ' ')} {signed(delta)}" for name, delta in module.by_category.items()),
        )
        for module in modules
    ]  # fmt: skip
    return table(("module", "A", "B", "B - A", "of it"), rows, figures="lrrrl")


def _tensors(difference: Difference) -> str:
    rows = [
        (
            signed(growth.delta_bytes), growth.category.value.replace("_", " "), code(growth.module), code(growth.op),
            text(tensors_in_words(growth), 200),
        )
        for growth in difference.tensors
    ]  # fmt: skip
    return table(("B - A", "category", "module", "operator", "tensors"), rows, figures="r")
