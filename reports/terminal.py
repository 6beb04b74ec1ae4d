"""The terminal view of a diagnosis: the verdict first, at most 25 lines where the terminal has 80 columns or more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memdoctor.levers.wording import in_words
from memdoctor.records import (
    Diagnosis,
    Dtype,
    Examination,
    Loop,
    Precision,
    RanOutAt,
    Scaling,
    TensorGroup,
    Toggle,
    Workload,
)
from memdoctor.reports.advice import advice_lines, most_telling, plan_table
from memdoctor.reports.agreement import comparison_lines, counter_lines
from memdoctor.reports.tables import LABEL, clean, console, grid, label, print_labelled, print_table, symbol
from memdoctor.scaling import LARGEST_BATCH
from memdoctor.units import MIB, format_bytes

MOST_LINES = 25
_BAR = 14  # columns of the longest bar
_SHORTEST_BAR = 5  # of which one can still read something
_PART = 34  # columns of a part: name, size and the space around them
_TWO_COLUMNS = 78  # from this width on, parts stand side by side
_STYLES = {
    "parameters": "blue", "gradients": "cyan", "optimizer_state": "magenta", "activations": "yellow",
    "free": "green",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Room:
    """How much of what can be said is said: entries of the plan, findings, and lines about other batches."""

    planned: int
    found: int
    batch: int


_ROOMS = (
    _Room(4, 3, 2), _Room(4, 3, 1), _Room(3, 3, 1), _Room(3, 2, 1), _Room(3, 2, 0), _Room(3, 1, 0), _Room(2, 1, 0),
    _Room(1, 0, 0),
)  # fmt: skip
"""From all to the least; the first with which the view keeps to its lines is taken."""


def print_diagnosis(diagnosis: Diagnosis, *, top: int = 0) -> None:
    """Print the view to standard output; ``top`` adds a list of the largest tensors at the peak."""
    out = console()
    room, left = _fitting_room(diagnosis, out)
    _print_opening(diagnosis, room, out)
    if diagnosis.toggles and left > 1:  # one of them, and how many more there are
        _print_as_many(diagnosis.toggles, diagnosis.provenance.mode, left, out)
    _print_closing(diagnosis, room, out)
    if top:
        _print_tensors(diagnosis.tensors[:top], out)


def _fitting_room(diagnosis: Diagnosis, out: Console) -> tuple[_Room, int]:
    """The most that can be said, and how many lines that leaves for what-ifs; none where even the least is too long."""
    left = 0
    for room in _ROOMS:
        with out.capture() as said:
            _print_opening(diagnosis, room, out)
            _print_closing(diagnosis, room, out)
        left = MOST_LINES - len(said.get().splitlines())
        if left >= 0:
            return room, left
    return _ROOMS[-1], 0


def _print_opening(diagnosis: Diagnosis, room: _Room, out: Console) -> None:
    headline, _, why = diagnosis.verdict.sentence.partition(": ")
    style = "bold green" if diagnosis.fits else "bold red"
    print_labelled(out, f"{headline}: ", setting_in_words(diagnosis), style=style)
    if diagnosis.ran_out is not None:
        print_labelled(out, "where", _ran_out(diagnosis.ran_out))
    print_labelled(out, "why", why)
    print_labelled(out, "peak", _peak(diagnosis))
    for line in comparison_lines(diagnosis.comparisons):
        print_labelled(out, "beside", line)
    for line in counter_lines(diagnosis.counters):
        print_labelled(out, "counted", line)
    out.print(_where(diagnosis, out.width))
    if diagnosis.plan:
        out.print(plan_table(most_telling(diagnosis.plan, room.planned), diagnosis.provenance.mode))
    for name, text in advice_lines(diagnosis, room.planned, room.found):
        print_labelled(out, name, text)


def _print_closing(diagnosis: Diagnosis, room: _Room, out: Console) -> None:
    if diagnosis.scaling is not None:
        how = "" if diagnosis.provenance.mode == "simulated" else "simulated: "
        lines = (how + _growth(diagnosis.scaling), _prediction(diagnosis.scaling))
        for label_, line in zip(("batch", ""), lines[: room.batch], strict=False):
            print_labelled(out, label_, line)
    for note in diagnosis.provenance.notes:
        print_labelled(out, "note", note)
    if diagnosis.assumed:
        print_labelled(out, "assumed", ", ".join(diagnosis.assumed))


def _print_as_many(toggles: Sequence[Toggle], mode: str, room: int, out: Console) -> None:
    """All the toggles, or where there is no room those that save most, and how many were left out."""
    shown = list(toggles)
    while len(shown) > 1 and _height(_toggles(shown, mode), out) > room - (len(shown) < len(toggles)):
        shown.remove(min(shown, key=lambda toggle: (toggle.fits, toggle.saves_bytes)))
    out.print(_toggles(shown, mode))
    if len(shown) < len(toggles):
        print_labelled(out, "", f"and {len(toggles) - len(shown)} more, which save no more: --json")


def _height(table: Table, out: Console) -> int:
    return len(out.render_lines(table, pad=False))


def print_toggles(toggles: Sequence[Toggle], mode: str) -> None:
    """Print what each change does to the peak; how it was probed is told where that is not ``mode``."""
    if toggles:
        console().print(_toggles(toggles, mode))


def print_repeats(runs: Sequence[Examination]) -> None:
    """Say whether repeated probes gave the same timeline."""
    if len(runs) > 1:
        same = all(_lives(run) == _lives(runs[0]) for run in runs)
        simulated = runs[0].provenance.mode == "simulated"
        unlike = "NOT the same: this is a bug, please report it" if simulated else "not the same bytes"
        verdict = "the same bytes, event by event" if same else unlike
        print_labelled(console(), "repeat", f"{len(runs)} probes gave {verdict}")


def _lives(run: Examination) -> object:
    """Births, deaths and phases. Where the driver puts a segment is chance on a real card."""
    timeline = run.timeline
    return timeline if run.provenance.mode == "simulated" else (timeline.events, timeline.phases)


def setting_in_words(diagnosis: Diagnosis) -> str:
    """What was probed, on what, and how the figures were obtained."""
    workload, device = diagnosis.workload, diagnosis.device
    kernels = ", ".join(diagnosis.provenance.attention_kernels)
    attention = workload.attention.value if workload.attention else f"{kernels} attention"
    words = [
        f"{workload.model} ({workload.task.value})", f"batch {workload.batch_size} x {workload.seq_length}",
        _precision(workload), workload.optimizer,
        attention if workload.attention is None or kernels == attention else f"{attention} ({kernels})",
        *_extras(workload, device.alloc_conf), f"on {device.name} with {format_bytes(device.total_bytes)}",
    ]  # fmt: skip
    where = " on the CPU" if device.is_cpu else ""
    return f"{', '.join(words)}; {diagnosis.provenance.mode}{where}"


def _precision(workload: Workload) -> str:
    """``fp16`` is autocast over fp32 weights; weights in 16 bits are named."""
    if workload.dtype is Dtype.FLOAT32:
        return workload.precision.value
    autocast = "" if workload.precision is Precision.FP32 else f" under {workload.precision.value} autocast"
    return f"{workload.dtype.value} weights{autocast}"


def _extras(workload: Workload, alloc_conf: str) -> list[str]:
    """What is out of the ordinary, in a few words each."""
    every = f" every {workload.every_n_layers} layers" if workload.every_n_layers > 1 else ""
    kind = " (reentrant)" if workload.use_reentrant else ""
    words = {
        f"checkpointing{every}{kind}": workload.gradient_checkpointing,
        "padded": workload.padded,
        f"{workload.gradient_accumulation_steps} micro-batches": workload.gradient_accumulation_steps > 1,
        f"{workload.forward_passes} forward passes": workload.forward_passes > 1,
        f"LoRA rank {workload.lora_rank}": workload.lora_rank > 0,
        f"{', '.join(workload.freeze)} frozen": bool(workload.freeze),
        f"label smoothing {workload.label_smoothing_factor:g}": workload.label_smoothing_factor > 0,
        "loop by hand": workload.loop is Loop.CUSTOM,
        f"evaluating {workload.eval_samples} samples by {workload.eval_batch_size}": workload.evaluate,
        alloc_conf: bool(alloc_conf),
    }
    return [text for text, applies in words.items() if applies]


def _ran_out(at: RanOutAt) -> str:
    """With the figures of PyTorch's message, which is in the JSON."""
    asked, free = format_bytes(at.segment_bytes or at.requested_bytes), format_bytes(at.free_bytes)
    place = f"step {at.step}, {at.phase}, {at.module or at.op}: tried to allocate {asked} with {free} free"
    if at.allocated_bytes is None or at.reserved_bytes is None:
        return place
    unallocated = format_bytes(at.reserved_bytes - at.allocated_bytes)
    return f"{place}; {format_bytes(at.allocated_bytes)} allocated, {unallocated} reserved but unallocated"


def _peak(diagnosis: Diagnosis) -> str:
    peak, device = diagnosis.peak, diagnosis.device
    if device.is_cpu:
        tensors, before = format_bytes(peak.allocated_bytes), format_bytes(device.context_bytes)
        together = format_bytes(peak.allocated_bytes + device.context_bytes)
        return f"{tensors} of tensors + {before} that the process held before = {together}"
    context, error = device.context_bytes / MIB, device.context_error_bytes / MIB
    others = f"+ {format_bytes(device.other_processes_bytes)} of others " if device.other_processes_bytes else ""
    return (
        f"{format_bytes(peak.reserved_bytes)} reserved ({format_bytes(peak.allocated_bytes)} allocated) "
        f"+ context {context:.0f} {symbol('±', '+-')} {error:.0f} MiB {others}= {format_bytes(peak.device_bytes)}"
    )


def _where(diagnosis: Diagnosis, width: int) -> Table:
    """The twelve parts, each with a bar to one scale; in two columns where there is room."""
    parts = list(diagnosis.breakdown.items())
    columns = 2 if width >= _TWO_COLUMNS else 1
    bar = min((width - LABEL) // columns - _PART, _BAR)
    bar = bar if bar >= _SHORTEST_BAR else 0
    rows = len(parts) // columns
    table = grid()
    for _ in range(columns):
        table.add_column(overflow="fold")
        table.add_column(justify="right", overflow="fold")
        table.add_column(no_wrap=True, width=bar)
    for row in range(rows):
        cells = [cell for name, size in parts[row::rows] for cell in _part(name, size, parts, bar)]
        table.add_row(label("holds" if row == 0 else ""), *cells)
    return table


def _part(name: str, size: int, parts: Sequence[tuple[str, int]], bar: int) -> tuple[Text, Text, Text]:
    largest = max(abs(size) for _, size in parts)
    filled = round(bar * abs(size) / largest) if largest else 0
    style = "red" if size < 0 else _STYLES.get(name, "white")
    return Text(name.replace("_", " ")), Text(format_bytes(size)), Text(symbol("█", "#") * filled, style=style)


def _toggles(toggles: Sequence[Toggle], mode: str) -> Table:
    table = grid()
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_column()
    for index, toggle in enumerate(toggles):
        saves = toggle.saves_bytes
        effect = f"{'saves' if saves >= 0 else 'COSTS'} {format_bytes(abs(saves))}"
        where = f"in {toggle.peak.phase}{'' if toggle.fits else ', no fit'}"
        where += "" if toggle.mode == mode else f", {toggle.mode}"
        reserved = format_bytes(toggle.peak.reserved_bytes)
        table.add_row(
            label("what if" if index == 0 else ""),
            *map(Text, map(clean, (in_words(toggle.change), reserved, effect, where))),
        )
    return table


def _prediction(scaling: Scaling) -> str:
    check = scaling.check
    first, second = scaling.from_batches
    return (
        f"{check.batch_size} from {first} and {second}: {format_bytes(check.predicted_allocated_bytes)} predicted, "
        f"{format_bytes(check.probed_allocated_bytes)} probed, difference {format_bytes(check.difference_bytes)}"
    )


def _growth(scaling: Scaling) -> str:
    most = scaling.largest_batch_that_fits
    in_evaluation = any(p.phase == "evaluation" for p in scaling.predicted if p.batch_size == scaling.check.batch_size)
    if in_evaluation and most is None:
        return "no training batch makes evaluation fit: it keeps the predictions of all samples"
    fits = "no batch fits" if most is None else f"the largest that fits is {most} (predicted)"
    if most == LARGEST_BATCH:
        fits = f"even {most:,} fits (predicted)"
    return f"{format_bytes(scaling.per_sample_bytes)} a sample in that phase; {fits}"


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
