"""The terminal view of a diagnosis: the verdict first, at most 25 lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memdoctor.records import Change, Diagnosis, Examination, Peak, Scaling, TensorGroup, Toggle
from memdoctor.reports.tables import console, print_table
from memdoctor.units import format_bytes

_LABEL = 7  # columns of the label at the left edge
_BAR = 14  # columns of the longest bar
_STYLES = {
    "parameters": "blue", "gradients": "cyan", "optimizer_state": "magenta", "activations": "yellow",
    "free": "green",
}  # fmt: skip


def print_diagnosis(diagnosis: Diagnosis, *, top: int = 0) -> None:
    """Print the view to standard output; ``top`` adds a list of the largest tensors at the peak."""
    out = console()
    for text in _lines(diagnosis):
        out.print(text)
    out.print(_where(diagnosis))
    if diagnosis.toggles:
        out.print(_toggles(diagnosis.toggles))
    for text in _closing(diagnosis):
        out.print(text)
    if top:
        _print_tensors(diagnosis.tensors[:top], out)


def print_toggles(toggles: Sequence[Toggle]) -> None:
    """Print what each change does to the peak."""
    if toggles:
        console().print(_toggles(toggles))


def print_repeats(runs: Sequence[Examination]) -> None:
    """Say whether repeated probes gave the same timeline."""
    if len(runs) > 1:
        same = all(run.timeline == runs[0].timeline for run in runs)
        verdict = "the same bytes, event by event" if same else "NOT the same: this is a bug, please report it"
        console().print(_labelled("repeat", f"{len(runs)} probes gave {verdict}"))


def _lines(diagnosis: Diagnosis) -> Iterator[Text]:
    workload, device, verdict = diagnosis.workload, diagnosis.device, diagnosis.verdict
    attention = workload.attention.value if workload.attention else "?"
    kernels = ", ".join(diagnosis.provenance.attention_kernels)
    words = [
        workload.model, workload.task.value, f"batch {workload.batch_size} x {workload.seq_length}",
        workload.precision.value, workload.optimizer,
        attention if kernels == attention else f"{attention} ({kernels})",
        *(["checkpointing"] if workload.gradient_checkpointing else []), *(["padded"] if workload.padded else []),
        f"on {device.name}, {format_bytes(device.total_bytes)}", diagnosis.provenance.mode,
    ]  # fmt: skip
    yield Text(", ".join(words), style="dim")
    headline, _, rest = verdict.sentence.partition(": ")
    yield Text(headline, style="bold green" if verdict.fits else "bold red")
    yield _labelled("why", rest)
    yield _labelled("peak", _peak(diagnosis.peak, diagnosis))


def _peak(peak: Peak, diagnosis: Diagnosis) -> str:
    device = diagnosis.device
    return (
        f"{format_bytes(peak.device_bytes)} on the card: allocated {format_bytes(peak.allocated_bytes)}, "
        f"reserved {format_bytes(peak.reserved_bytes)}, "
        f"context {format_bytes(device.context_bytes)} ± {format_bytes(device.context_error_bytes)} (catalogue)"
    )


def _where(diagnosis: Diagnosis) -> Table:
    """The twelve parts in two columns, each with a bar to one scale."""
    parts = [(name, size) for name, size in diagnosis.breakdown.items()]
    half = (len(parts) + 1) // 2
    largest = max(abs(size) for _, size in parts)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(width=_LABEL, no_wrap=True)
    for _ in range(2):
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True, width=_BAR)
    for index, (left, right) in enumerate(zip_longest(parts[:half], parts[half:], fillvalue=("", 0))):
        table.add_row(_label("where" if index == 0 else ""), *_part(*left, largest), *_part(*right, largest))
    return table


def _part(name: str, size: int, largest: int) -> tuple[Text, Text, Text]:
    if not name:
        return Text(), Text(), Text()
    filled = round(_BAR * abs(size) / largest) if largest else 0
    style = "red" if size < 0 else _STYLES.get(name, "white")
    return Text(name.replace("_", " ")), Text(format_bytes(size)), Text(_block() * filled, style=style)


def _block() -> str:
    try:
        "█".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "#"
    return "█"


def _toggles(toggles: Sequence[Toggle]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(width=_LABEL, no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    for index, toggle in enumerate(toggles):
        saves = toggle.saves_bytes
        effect = f"{'saves' if saves >= 0 else 'COSTS'} {format_bytes(abs(saves))}"
        where = f"peak in {toggle.peak.phase}{'' if toggle.fits else ', does not fit'}"
        label = _label("what if" if index == 0 else "")
        reserved = Text(f"reserved {format_bytes(toggle.peak.reserved_bytes)}")
        table.add_row(label, Text(describe_change(toggle.change)), reserved, Text(effect), Text(where))
    return table


def describe_change(change: Change) -> str:
    """A change as one reads it: ``fp16 + gradient checkpointing``."""
    return " + ".join(_describe(name, value) for name, value in change.items())


def _describe(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return str(value) if name == "precision" else f"{words} {value}"


def _closing(diagnosis: Diagnosis) -> Iterator[Text]:
    if diagnosis.scaling is not None:
        for line in _scaling(diagnosis.scaling):
            yield line
    if diagnosis.assumed:
        yield _labelled("assumed", ", ".join(diagnosis.assumed))


def _scaling(scaling: Scaling) -> Iterator[Text]:
    check = scaling.check
    first, second = scaling.from_batches
    yield _labelled(
        "batch",
        f"predicted from batch {first} and {second}, {scaling.method}, for batch {check.batch_size}: "
        f"{format_bytes(check.predicted_allocated_bytes)}; probed {format_bytes(check.probed_allocated_bytes)}; "
        f"difference {format_bytes(check.difference_bytes)}",
    )
    most = scaling.largest_batch_that_fits
    fits = "no batch fits" if most is None else f"the largest batch that fits is {most} (predicted)"
    yield _labelled("", f"{format_bytes(scaling.per_sample_bytes)} a sample in that phase; {fits}")


def _print_tensors(groups: Sequence[TensorGroup], out: Console) -> None:
    out.print(Text("the largest tensors alive at the peak", style="bold"))
    rows = [
        (
            format_bytes(group.bytes), f"{group.count} x {'x'.join(map(str, group.shape)) or 'scalar'}", group.dtype,
            group.category.value, group.op, group.module or "-", group.phase,
        )
        for group in groups
    ]  # fmt: skip
    print_table(("bytes", "count x shape", "dtype", "category", "operator", "module", "born in"), rows, keep=7)


def _labelled(label: str, text: str) -> Text:
    return Text.assemble((f"{label:<{_LABEL}} ", "bold"), text)


def _label(text: str) -> Text:
    return Text(text, style="bold")
