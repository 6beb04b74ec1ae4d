"""The terminal view of what fits: the answer first, then a table, each number of it probed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from rich.console import Console

from memdoctor.levers.wording import in_words
from memdoctor.records import CardRow, Change, Fit, FitCell, Plan, SettingFit, Wanted, Workload
from memdoctor.reports.tables import console, print_labelled, print_table, symbol
from memdoctor.units import MIB, format_bytes

MOST_PLANS = 4
_SAID = {"model", "task", "batch_size", "seq_length", "precision", "optimizer", "gradient_accumulation_steps"}


def print_fit(fit: Fit) -> None:
    """Print the view to standard output."""
    out = console()
    answer, good = answer_in_words(fit)
    print_labelled(out, f"{answer}: ", setting_of(fit), style="bold green" if good else "bold red")
    if fit.cards:
        _print_cards(fit, out)
    else:
        _print_lengths(fit, out)
    if fit.wanted is not None:
        _print_wanted(fit.wanted, out)
    if fit.assumed:
        print_labelled(out, "assumed", ", ".join(fit.assumed))


def answer_in_words(fit: Fit) -> tuple[str, bool]:
    """The answer to what was asked, and whether it is good news."""
    if fit.cards:
        return _answer_of_cards(fit)
    if fit.wanted is not None:
        return _answer_of_wanted(fit.wanted, fit.cells)
    length = max(cell.seq_length for cell in fit.cells)
    at = [cell for cell in fit.cells if cell.seq_length == length]
    as_given, best = at[0], max(at, key=_largest)
    if not _largest(best):
        return f"Not even batch 1 fits at {length} tokens", False
    words = f"{_batch(as_given)} {change_in_words(as_given.change)}"
    if _largest(best) > _largest(as_given):
        words += f", {_batch(best)} with {in_words(best.change)}"
    return f"Largest batch at {length} tokens {words}", True


def _answer_of_wanted(wanted: Wanted, cells: Sequence[FitCell]) -> tuple[str, bool]:
    batch = f"Effective batch {wanted.effective_batch} at {wanted.seq_length} tokens"
    if wanted.fits:
        return f"{batch} fits as it is", True
    if wanted.plan:
        return f"{batch} fits with {in_words(wanted.plan[0].change)}", True
    as_given = (cell for cell in cells if not cell.change and cell.seq_length == wanted.seq_length)
    largest = max(map(_largest, as_given), default=0)
    if near := _near(wanted.effective_batch, largest):
        return f"{batch} does not fit in as few micro-batches as are tried, but batch {largest} does: {near}", False
    return f"{batch} does not fit, whatever was changed", False


def _near(wanted: int, largest: int) -> str:
    """The effective batch below one with few divisors that as few batches as can be make up; empty where it is that."""
    if not largest:
        return ""
    steps = -(-wanted // largest)
    part = wanted // steps
    return f"{part} x {steps} = {part * steps} is near" if part * steps != wanted else ""


def _answer_of_cards(fit: Fit) -> tuple[str, bool]:
    sizes = {row.gpu: format_bytes(row.total_bytes) for row in fit.cards}
    rows = {row.gpu: row for row in fit.cards}
    as_it_is, changed = fit.smallest_card, fit.smallest_card_changed
    if changed is None:
        return f"None of {len(sizes)} cards takes this", False
    cheapest = rows[changed].cheapest
    with_change = f"{changed} ({sizes[changed]}) with {in_words(cheapest.change) if cheapest else ''}"
    if as_it_is is None:
        return f"No card of {len(sizes)} takes this as it is, the smallest otherwise is {with_change}", False
    smallest = f"Smallest card for this of {len(sizes)}: {as_it_is} ({sizes[as_it_is]})"
    return (smallest if changed == as_it_is else f"{smallest} as it is, {with_change}"), True


def setting_of(fit: Fit) -> str:
    """What was probed, on what, and how the figures were obtained."""
    workload = fit.workload
    words = [f"{workload.model} ({workload.task.value})"]
    if fit.cards:
        words.append(f"batch {workload.batch_size} x {workload.seq_length}")
    words += [workload.precision.value, workload.optimizer, *_unusual(workload)]
    if not fit.cards:
        words.append(f"on {fit.device.name} with {format_bytes(fit.device.total_bytes)}")
    return f"{', '.join(words)}; {fit.provenance.mode}"


def _unusual(workload: Workload) -> Iterator[str]:
    """Settings that are not the default ones and have not been said."""
    if workload.gradient_accumulation_steps > 1:
        yield f"{workload.gradient_accumulation_steps} micro-batches"
    for item in fields(workload):
        value = getattr(workload, item.name)
        if item.name not in _SAID and value != item.default:
            yield in_words({item.name: value})


def change_in_words(change: Change) -> str:
    """The change, or that there is none."""
    return in_words(change) if change else "as given"


def _largest(cell: FitCell) -> int:
    return (cell.edge.largest_batch or 0) if cell.edge else 0


def _batch(cell: FitCell) -> str:
    """The largest batch; where that is the largest ever probed, with a plus."""
    return f"{_largest(cell)}{'+' if cell.edge and cell.edge.capped else ''}"


def _print_lengths(fit: Fit, out: Console) -> None:
    lengths = sorted({cell.seq_length for cell in fit.cells})
    changes = [cell.change for cell in fit.cells if cell.seq_length == lengths[0]]
    cells = {(cell.seq_length, in_words(cell.change)): cell for cell in fit.cells}
    rows = [
        (change_in_words(change), *(cell_in_words(cells[length, in_words(change)]) for length in lengths))
        for change in changes
    ]  # fmt: skip
    print_table(("largest batch", *(f"{length} tokens" for length in lengths)), rows, keep=len(lengths) + 1)
    print_labelled(out, "checked", how_checked(fit))
    for why in dict.fromkeys(f"{change_in_words(cell.change)}: {cell.why_not}" for cell in fit.cells if cell.why_not):
        print_labelled(out, "not", why)


def cell_in_words(cell: FitCell) -> str:
    """The largest batch at one length, and what it reserves."""
    if cell.edge is None:
        return "not probed"
    peak = cell.edge.peak
    return f"{_batch(cell)} ({format_bytes(peak.reserved_bytes)})" if peak else "1 does not fit"


def how_checked(fit: Fit) -> str:
    """How the table was come by, and to what it holds."""
    edges = [cell.edge for cell in fit.cells if cell.edge]
    exact = sum((edge.largest_batch or 0) == edge.predicted_batch for edge in edges)
    words = ["each batch fits and one more does not, both probed directly; reserved peaks"]
    if any(edge.capped for edge in edges):
        words.append("+: larger batches are not probed")
    words.append(f"{exact} of {len(edges)} as predicted from batch 2 and 3")
    words.append("larger batches may fit again where the allocator's blocks fall better")
    context, error = fit.device.context_bytes / MIB, fit.device.context_error_bytes / MIB
    words.append(f"the card's context is taken as {context:.0f} {symbol('±', '+-')} {error:.0f} MiB")
    return "; ".join(words)


def _print_wanted(wanted: Wanted, out: Console) -> None:
    asked = f"batch {wanted.batch_size} x {wanted.gradient_accumulation_steps} micro-batch"
    asked += "es" if wanted.gradient_accumulation_steps > 1 else ""
    reserved = format_bytes(wanted.peak.reserved_bytes)
    does = "fits as it is" if wanted.fits else "does not fit as it is"
    print_labelled(out, "wanted", f"{asked} of {wanted.seq_length} tokens {does}: {reserved} reserved")
    for number, entry in enumerate(wanted.plan[:MOST_PLANS]):
        print_labelled(out, "plan" if number == 0 else "", _plan(entry))
    if len(wanted.plan) > MOST_PLANS:
        print_labelled(out, "", f"and {len(wanted.plan) - MOST_PLANS} more: --json")
    if wanted.smallest is not None:
        print_labelled(out, "least", f"the smallest of all that was probed: {_plan(wanted.smallest)}")


def _plan(entry: Plan) -> str:
    time = f", {entry.time_cost}" if entry.step_time is not None else ""
    return f"{entry.why}{time} [costs {'nothing' if entry.cost == 'none' else entry.cost}]"


def _print_cards(fit: Fit, out: Console) -> None:
    columns = ("card", "memory", "as it is", "fits with", "largest batch")
    rows = [
        (row.gpu, format_bytes(row.total_bytes), as_it_is(row), cheapest_in_words(row), edge_in_words(row))
        for row in fit.cards
    ]  # fmt: skip
    print_table(columns, rows, keep=len(columns))
    print_labelled(
        out, "checked", "each probed on that card, changes where it does not fit as it is; of the largest batch as it "
        "is, one more too, which does not fit. Other cards: --gpus all"
    )  # fmt: skip
    reasons = (setting.why_not for row in fit.cards for setting in row.settings if setting.why_not)
    for why in dict.fromkeys(reasons):
        print_labelled(out, "not", why)


def as_it_is(row: CardRow) -> str:
    """How much the workload as it is leaves free on a card, or lacks."""
    return _room(next(setting for setting in row.settings if not setting.change))


def _room(setting: SettingFit) -> str:
    if setting.headroom_bytes is None:
        return "not probed"
    room = format_bytes(abs(setting.headroom_bytes))
    if setting.fits:
        return f"{room} free"
    return f"{room} short" if setting.headroom_bytes < 0 else "does not fit"


def cheapest_in_words(row: CardRow) -> str:
    """The cheapest change with which it fits a card; empty where it fits as it is."""
    if row.fits:
        return ""
    return in_words(row.cheapest.change) if row.cheapest else "none of those tried"


def edge_in_words(row: CardRow) -> str:
    """The largest batch of the workload as it is on a card."""
    if row.edge is None:
        return "not probed"
    if row.edge.largest_batch is None:
        return "1 does not fit"
    return f"{row.edge.largest_batch}{'+' if row.edge.capped else ''}"
