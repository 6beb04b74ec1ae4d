"""``memdoctor compare``: what one saved file holds more than another, without torch."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from memdoctor.cli.options import OUTPUT, options
from memdoctor.cli.output import Output, check_outputs, next_command, print_json, shown_of, write_all
from memdoctor.cli.workload_options import POSITIVE
from memdoctor.errors import UsageError
from memdoctor.records import Difference

STANDARD_INPUT = Path("-")
TOP = (
    click.option("--top", type=POSITIVE, help="List this many of the modules and tensors that differ most.",
                 panel="Output"),
)  # fmt: skip


@click.command("compare")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@options(OUTPUT, TOP)
def command(
    a: Path,
    b: Path,
    outputs: tuple[Output, ...],
    as_json: bool,
    force: bool,
    quiet: bool,
    redact: bool,
    top: int | None,
) -> None:
    """What B holds more than A, by part, phase, module and tensor.

    A and B are saved diagnoses or examinations, in any combination: two configurations, two versions of torch,
    measured and simulated, before and after. One of them can be - for standard input.
    """
    from memdoctor import doctor
    from memdoctor.difference import difference_of
    from memdoctor.reports.difference import print_difference
    from memdoctor.reports.documents import difference_document, read_diagnosis

    _check(a, b, outputs)
    check_outputs(outputs, Difference, force=force)
    read = [read_diagnosis(_path(file), doctor.conclude) for file in (a, b)]
    difference = shown_of(difference_of(*read, names=_names(a, b)), redact=redact)
    document = difference_document(difference)
    if as_json:
        print_json(document)
    elif not outputs:
        print_difference(difference, top=top or 0)
    write_all(outputs, difference, document, force=force)
    if not (as_json or quiet or redact or outputs or STANDARD_INPUT in (a, b) or difference.same):
        next_command(f"memdoctor compare {a} {b} -o difference.md")


def _check(a: Path, b: Path, outputs: tuple[Output, ...]) -> None:
    if a == b == STANDARD_INPUT:
        raise UsageError("A and B are both standard input", why="there is one", hint="save one of them to a file")
    for file in {a, b} - {STANDARD_INPUT}:
        if file.resolve() in {output.path.resolve() for output in outputs}:
            raise UsageError(
                f"{file} is read and cannot be written", why="its evidence would be lost", hint="another -o"
            )


def _path(file: Path) -> Path:
    return Path("/dev/stdin") if file == STANDARD_INPUT else file


def _names(a: Path, b: Path) -> tuple[str, str]:
    """What the files are called; with their folders where that is the same."""
    if a.name == b.name:
        return str(a), str(b)
    return _name(a), _name(b)


def _name(file: Path) -> str:
    return "standard input" if file == STANDARD_INPUT else file.name
