"""What fits, and what a verification found, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from memdoctor.records import Fit, Status, Verification, Wanted
from memdoctor.reports import fit as fit_words, verification as verification_words
from memdoctor.reports.markdown.blocks import document, items, table
from memdoctor.reports.markdown.diagnosis import plan_blocks
from memdoctor.reports.markdown.environment import environment
from memdoctor.reports.markdown.text import text
from memdoctor.units import format_bytes


def fit_markdown(fit: Fit) -> bytes:
    """The whole document."""
    return document(_fit_blocks(fit))


def _fit_blocks(fit: Fit) -> Iterator[str]:
    answer, _ = fit_words.answer_in_words(fit)
    yield f"### {text(answer)}"
    yield f"{text(fit_words.setting_of(fit))}."
    yield _cards(fit) if fit.cards else _lengths(fit)
    if not fit.cards:
        yield text(fit_words.how_checked(fit))
    if fit.wanted is not None:
        yield _wanted(fit.wanted)
        yield from plan_blocks(fit.wanted.plan, fit.provenance.mode)
    yield environment(fit.workload, fit.device, fit.provenance, fit.assumed)


def _lengths(fit: Fit) -> str:
    lengths = sorted({cell.seq_length for cell in fit.cells})
    rows: dict[str, dict[int, str]] = {}
    for cell in fit.cells:
        words = text(fit_words.change_in_words(cell.change), 300)
        rows.setdefault(words, {})[cell.seq_length] = text(fit_words.cell_in_words(cell))
    head = ("largest batch", *(f"{length} tokens" for length in lengths))
    told = [(words, *(cells.get(length, "") for length in lengths)) for words, cells in rows.items()]
    return table(head, told, figures="l" + "r" * len(lengths), most=60)


def _cards(fit: Fit) -> str:
    rows = [
        (
            text(row.gpu, 100), format_bytes(row.total_bytes), text(fit_words.as_it_is(row)),
            text(fit_words.cheapest_in_words(row), 300), fit_words.edge_in_words(row),
        )
        for row in fit.cards
    ]  # fmt: skip
    return table(("card", "memory", "as it is", "fits with", "largest batch"), rows, figures="lrrlr", most=100)


def _wanted(wanted: Wanted) -> str:
    does = "fits" if wanted.fits else "does not fit"
    steps = wanted.gradient_accumulation_steps
    asked = f"Batch {wanted.batch_size} x {steps} micro-batch{'' if steps == 1 else 'es'} of {wanted.seq_length} tokens"
    said = f"{asked} {does} as it is: {format_bytes(wanted.peak.reserved_bytes)} reserved."
    if wanted.smallest is not None:
        said += f" The smallest of all that was probed: {text(wanted.smallest.why)}."
    return said


def verification_markdown(found: Verification) -> bytes:
    """The whole document."""
    return document(_verification_blocks(found))


def _verification_blocks(found: Verification) -> Iterator[str]:
    figure = verification_words.figure_in_words
    yield f"### {text(verification_words.verdict_in_words(found))}"
    yield f"{text(verification_words.setting_of(found))}."
    rows = [
        (
            text(check.title, 200), f"**{check.status.value}**" if check.status is Status.FAILED else
            check.status.value.replace("_", " "), figure(check.value), figure(check.tolerance),
        )
        for check in found.checks
    ]  # fmt: skip
    yield table(("check", "result", "value", "tolerance"), rows, figures="llrr")
    failed = [f"{text(check.title)}: {text(check.cause)} {text(check.sentence)}" for check in found.failed]
    yield items(failed)
    yield environment(found.workload, found.device, found.provenance, found.assumed)
