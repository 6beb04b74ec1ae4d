"""``memdoctor report``: from a saved file to a report, without torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from memdoctor.cli.options import OUTPUT, PARTS, TOP, options
from memdoctor.cli.output import Output, check_outputs, print_json, shown_of, write_all
from memdoctor.cli.showing import show_diagnosis
from memdoctor.errors import UsageError
from memdoctor.records import Diagnosis, Difference, Fit, Verification

if TYPE_CHECKING:
    from memdoctor.reports.formats import Report


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@options(OUTPUT, TOP, PARTS)
def command(
    file: Path, outputs: tuple[Output, ...], as_json: bool, force: bool, quiet: bool, redact: bool, top: int | None,
    details: bool, checklist: bool,
) -> None:  # fmt: skip
    """Render a saved examination, diagnosis, fit, verification or difference again: on the terminal, or with -o.

    FILE can be - for standard input.
    """
    from memdoctor import doctor
    from memdoctor.reports.documents import read_report

    if file.resolve() in {output.path.resolve() for output in outputs}:
        raise UsageError(f"{file} is read and cannot be written", why="its evidence would be lost", hint="another -o")
    report = read_report(Path("/dev/stdin") if file == Path("-") else file, doctor.conclude)
    check_outputs(outputs, type(report), force=force)
    if isinstance(report, Difference):
        _refuse_parts(file, report, {"--details": details, "--checklist": checklist})
    elif not isinstance(report, Diagnosis):
        _refuse_parts(file, report, {"--top": bool(top), "--details": details, "--checklist": checklist})
    elif (details or checklist) and not report.levers:
        option = "--details" if details else "--checklist"
        raise UsageError(
            f"{option} has nothing to print", why=f"{file} holds one examination: no advice rests on it",
            hint="memdoctor diagnose -o FILE saves all of a diagnosis",
        )  # fmt: skip
    report = shown_of(report, redact=redact)
    document, show = _rendered(report, top=top or 0, details=details, checklist=checklist)
    if as_json:
        print_json(document)
    elif not outputs:
        show()
    write_all(outputs, report, document, force=force)


def _refuse_parts(file: Path, report: Difference | Fit | Verification, asked: dict[str, bool]) -> None:
    kind = type(report).__name__.lower()
    for option, given in asked.items():
        if given:
            raise UsageError(f"{option} is of a diagnosis", why=f"{file} is a {kind}", hint=f"leave {option} out")


def _rendered(report: Report, **parts: Any) -> tuple[dict[str, Any], Callable[[], None]]:
    """The document, and what prints it."""
    from memdoctor.reports.difference import print_difference
    from memdoctor.reports.documents import (
        diagnosis_document,
        difference_document,
        fit_document,
        verification_document,
    )
    from memdoctor.reports.fit import print_fit
    from memdoctor.reports.verification import print_verification

    if isinstance(report, Verification):
        return verification_document(report), partial(print_verification, report)
    if isinstance(report, Fit):
        return fit_document(report), partial(print_fit, report)
    if isinstance(report, Difference):
        return difference_document(report), partial(print_difference, report, top=parts["top"])
    return diagnosis_document(report), partial(show_diagnosis, report, **parts)
