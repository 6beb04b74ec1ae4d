"""What to do, and why: the plan and the findings in a few lines of the view, and all of it where it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memdoctor.levers.wording import in_words
from memdoctor.records import Diagnosis, Lever, Plan
from memdoctor.reports.checklist import cause_in_a_line
from memdoctor.reports.tables import clean, console, grid, label, print_labelled
from memdoctor.units import format_bytes

_PASTED = ("trainer", "model", "data", "environment")  # languages of a patch that a user of the Trainer needs
NARROW = 0.1  # a band of less than a tenth of the ratio is not told
_COST = {"none": "free", "time": "", "numerics": "numerics", "task": "another task"}


def most_telling(plan: Sequence[Plan], most: int) -> list[Plan]:
    """So many entries, in their order: the first of each cost before others of the same cost."""
    first = {entry.cost: index for index, entry in reversed(list(enumerate(plan)))}
    ranked = sorted(range(len(plan)), key=lambda index: (first[plan[index].cost] != index, index))
    return [plan[index] for index in sorted(ranked[:most])]


def plan_table(plan: Sequence[Plan], mode: str) -> Table:
    """One line an entry: the change, its probed peak, and what it costs."""
    table = grid()
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for index, entry in enumerate(plan):
        words = (in_words(entry.change), format_bytes(entry.peak.reserved_bytes), costs_in_words(entry, mode))
        table.add_row(label("do" if index == 0 else ""), *map(Text, map(clean, words)))
    return table


def costs_in_words(entry: Plan, mode: str) -> str:
    """Whether it fits, how it was probed where that is not ``mode``, and what it costs."""
    probed = "" if entry.mode == mode else entry.mode
    return ", ".join(filter(None, ("" if entry.fits else "does not fit", probed, time_of(entry), _COST[entry.cost])))


def time_of(entry: Plan) -> str:
    """Relative to the target's, marked as an estimate with its band where that is wider than a rounding."""
    ratio, low, high = entry.step_time, entry.step_time_low, entry.step_time_high
    if ratio is None or low is None or high is None:
        return ""
    band = f" ({low:.2f} to {high:.2f})" if high - low >= NARROW * ratio else ""
    return f"{'est. ' if entry.time_kind == 'estimate' else ''}{ratio:.2f} x time{band}"


def advice_lines(diagnosis: Diagnosis, most_planned: int, most_found: int) -> Iterator[tuple[str, str]]:
    """Label and text: what to paste for the first entry, what would do where there is none, and what was found."""
    if len(diagnosis.plan) > most_planned:
        yield "", f"and {len(diagnosis.plan) - most_planned} more: --details"
    if diagnosis.plan and most_found:
        yield from (("paste", line) for line in pasted(diagnosis.plan[0]) if line)
    elif diagnosis.smallest is not None:
        yield "do", _nothing_fits(diagnosis)
    if cause := cause_in_a_line(diagnosis):
        yield "cause", cause
    found = diagnosis.findings
    more = f"; and {len(found) - most_found} more: --details" if len(found) > most_found else ""
    for index, finding in enumerate(found[:most_found]):
        last = index == most_found - 1
        yield ("found" if index == 0 else ""), f"{finding.id} {finding.title}{more if last else ''}"


def pasted(entry: Plan) -> Iterator[str]:
    """An entry's patch for a user of the Trainer; Python of more than a line has no room in the view."""
    own_loop = ("torch",) if "trainer" not in entry.patch else ()
    for language in (*own_loop, *_PASTED):
        lines = entry.patch.get(language, "").splitlines()
        if language == "trainer" or len(lines) == 1:
            yield " ".join(line.strip() for line in lines)
        elif lines:
            yield f"some lines of Python for the {language}: --details"


def _nothing_fits(diagnosis: Diagnosis) -> str:
    smallest = diagnosis.smallest
    assert smallest is not None
    least = f"nothing fits; the smallest footprint found is {format_bytes(smallest.peak.reserved_bytes)} reserved"
    text = f"{least} ({in_words(smallest.change)})"
    for card, what in ((smallest.card, "it fits"), (smallest.card_as_is, "unchanged, this fits")):
        if card is not None:
            text += f"; {what} on {card.gpu} with {format_bytes(card.total_bytes)}"
    return text


def print_details(diagnosis: Diagnosis) -> None:
    """Print every finding with its remedies, every lever, all patches of the plan, and what was not checked."""
    out = console()
    for finding in diagnosis.findings:
        print_labelled(out, finding.id, f"{finding.severity}: {finding.title}: {finding.detail}")
        for remedy in finding.remedies:
            print_labelled(out, "", f"- {remedy}")
    _print_levers(diagnosis.levers, out)
    for entry in diagnosis.plan:
        print_labelled(out, "plan", f"{entry.why}; {entry.time_cost}")
        for language, patch in entry.patch.items():
            out.print(Text(f"        {language}:", style="bold"))
            out.print(Text(clean_lines(patch)), soft_wrap=True)
    passed = len(diagnosis.checks_passed)
    print_labelled(out, "checks", f"{passed} rules found nothing; {len(diagnosis.not_checked)} could not be checked:")
    for rule in diagnosis.not_checked:
        print_labelled(out, "", f"{rule.id} {rule.title}: not checked, because {rule.why}", indent=14)


def clean_lines(text: str) -> str:
    """Lines of a patch, each safe to print, set in."""
    return "\n".join(f"          {clean(line)}" for line in text.splitlines())


def _print_levers(levers: Sequence[Lever], out: Console) -> None:
    for lever in levers:
        change = f" ({in_words(lever.change)})" if lever.change and lever.status == "probed" else ""
        unknown = "not probed: " if lever.status == "not probed" else ""
        without = "without it " if lever.status == "in use" else ""
        time = (
            ""
            if lever.step_time is None
            else f"; {without}{lever.step_time:.2f} x the time a sample ({lever.time_kind})"
        )
        print_labelled(out, "lever", f"{lever.name}{change}: {unknown}{lever.sentence}{time}")
