"""``memdoctor report``: from a saved file to a report, without torch."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from memdoctor.cli.options import OUTPUT, TOP, options
from memdoctor.cli.output import check_outputs, print_json, write_all
from memdoctor.errors import UsageError


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@options(OUTPUT, TOP)
def command(file: Path, outputs: tuple[Path, ...], as_json: bool, force: bool, quiet: bool, top: int | None) -> None:
    """Render a saved examination or diagnosis again: on the terminal, or as JSON with -o or --json."""
    from memdoctor import doctor
    from memdoctor.reports.documents import diagnosis_document, read_diagnosis
    from memdoctor.reports.terminal import print_diagnosis

    check_outputs(outputs, force=force)
    if file.resolve() in {path.resolve() for path in outputs}:
        raise UsageError(f"{file} is read and cannot be written", why="its evidence would be lost", hint="another -o")
    diagnosis = read_diagnosis(file, doctor.conclude)
    document = diagnosis_document(diagnosis)
    if as_json:
        print_json(document)
    elif not outputs:
        print_diagnosis(diagnosis, top=top or 0)
    write_all(outputs, document, force=force)
