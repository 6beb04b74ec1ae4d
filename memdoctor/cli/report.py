"""``memdoctor report``: from a saved file to a report, without torch."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import rich_click as click

from memdoctor.cli.options import OUTPUT, TOP, options
from memdoctor.cli.output import check_outputs, print_json, write_all
from memdoctor.errors import UsageError
from memdoctor.records import Fit, Verification


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@options(OUTPUT, TOP)
def command(file: Path, outputs: tuple[Path, ...], as_json: bool, force: bool, quiet: bool, top: int | None) -> None:
    """Render a saved examination, diagnosis, verification or fit again: on the terminal; with -o or --json as JSON."""
    from memdoctor import doctor
    from memdoctor.reports.documents import diagnosis_document, fit_document, read_report, verification_document
    from memdoctor.reports.fit import print_fit
    from memdoctor.reports.terminal import print_diagnosis
    from memdoctor.reports.verification import print_verification

    check_outputs(outputs, force=force)
    if file.resolve() in {path.resolve() for path in outputs}:
        raise UsageError(f"{file} is read and cannot be written", why="its evidence would be lost", hint="another -o")
    report = read_report(file, doctor.conclude)
    if top and isinstance(report, Verification | Fit):
        kind = "verification" if isinstance(report, Verification) else "fit"
        raise UsageError("--top lists tensors", why=f"{file} is a {kind}, and has none")
    if isinstance(report, Verification):
        document, show = verification_document(report), partial(print_verification, report)
    elif isinstance(report, Fit):
        document, show = fit_document(report), partial(print_fit, report)
    else:
        document, show = diagnosis_document(report), partial(print_diagnosis, report, top=top or 0)
    if as_json:
        print_json(document)
    elif not outputs:
        show()
    write_all(outputs, document, force=force)
