"""``memdoctor report``: from a saved file to a report, without torch."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import rich_click as click

from memdoctor.cli.options import CHECKLIST, OUTPUT, TOP, options
from memdoctor.cli.output import check_outputs, print_json, write_all
from memdoctor.errors import UsageError
from memdoctor.records import Diagnosis, Verification


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@options(OUTPUT, TOP, CHECKLIST)
def command(
    file: Path, outputs: tuple[Path, ...], as_json: bool, force: bool, quiet: bool, top: int | None, checklist: bool
) -> None:
    """Render a saved examination, diagnosis or verification again: on the terminal, or as JSON with -o or --json."""
    from memdoctor import doctor
    from memdoctor.reports.checklist import print_checklist, print_claims
    from memdoctor.reports.documents import diagnosis_document, read_report, verification_document
    from memdoctor.reports.terminal import print_diagnosis
    from memdoctor.reports.verification import print_verification

    check_outputs(outputs, force=force)
    if file.resolve() in {path.resolve() for path in outputs}:
        raise UsageError(f"{file} is read and cannot be written", why="its evidence would be lost", hint="another -o")
    report = read_report(file, doctor.conclude)
    if checklist and not getattr(report, "checklist", ()):
        raise UsageError("there is no checklist to print", why=f"{file} is no diagnosis that followed one")
    if isinstance(report, Verification):
        if top:
            raise UsageError("--top lists tensors", why=f"{file} is a verification, and has none")
        document, show = verification_document(report), partial(print_verification, report)
    else:
        document, show = diagnosis_document(report), partial(print_diagnosis, report, top=top or 0)
    if as_json:
        print_json(document)
    elif not outputs:
        show()
        if isinstance(report, Diagnosis):
            if checklist:
                print_checklist(report)
            print_claims(report)
    write_all(outputs, document, force=force)
