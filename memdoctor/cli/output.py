"""What commands print and write: reports to standard output, progress and files' names to standard error."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from memdoctor.errors import InputError, UsageError
from memdoctor.records import Diagnosis

if TYPE_CHECKING:
    from memdoctor.reports.formats import Format, Report

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Output:
    """Where to write: a file, or a ``folder`` for each figure alone."""

    path: Path
    folder: bool

    def __str__(self) -> str:
        """As it was typed."""
        return f"{self.path}/" if self.folder else str(self.path)


class OutputType(click.ParamType[Output]):
    """A file, or a folder: its name ends in a slash, or it is one and not called like a file."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """What was meant."""
        path = Path(value)
        is_one = not path.suffix and os.path.isdir(path)  # noqa: PTH112 - Path's own raises for a name too long
        return Output(path, value.endswith(("/", os.sep)) or is_one)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def check_outputs(outputs: Sequence[Output], kind: type, *, force: bool) -> None:
    """Refuse before the work what could not be written after it, of a report of this ``kind``.

    Raises:
        UsageError: a format that is not there, or not for this kind.
        InputError: a file that exists, or cannot be written.
    """
    from memdoctor.reports.formats import format_of, suffixes_of
    from memdoctor.storage import check_writable

    for output in outputs:
        path = output.path
        if output.folder:
            _check_folder(path, kind)
            continue
        check_writable(path, force=force)
        format_ = format_of(path.name)
        if format_ is None or kind not in format_.renderers:
            of_kind = "" if format_ is None else f" of a {kind.__name__.lower()}"
            raise UsageError(
                f"cannot write {path}",
                why=f"there is no report{of_kind} {_named(path, format_)}",
                hint=f"a name that ends in {', '.join(suffixes_of(kind))}",
            )
    if len({output.path.resolve() for output in outputs}) < len(outputs):
        raise UsageError("two outputs are one file", why=f"-o {' -o '.join(map(str, outputs))}")


def _named(path: Path, format_: Format | None) -> str:
    if format_ is not None:
        return f"as {format_.name}"
    return f"in the format {path.suffix}" if path.suffix else "without a suffix"


def _check_folder(path: Path, kind: type) -> None:
    """Refuse a folder that figures could not be written to; one that is not there is made, in one that is."""
    if kind.__name__ != "Diagnosis":
        raise UsageError(
            f"cannot write {path}/", why=f"a {kind.__name__.lower()} has one figure", hint=f"-o {path}/figure.png"
        )
    if path.exists() and not path.is_dir():
        raise InputError(f"cannot write {path}/", why=f"{path} is a file")
    if not path.is_dir() and not path.parent.is_dir():
        raise InputError(f"cannot write {path}/", why=f"there is no directory {path.parent}")


def shown_of(report: _R, *, redact: bool) -> _R:
    """The report as it is to be shown: with ``redact`` without what tells whose machine it is from."""
    if not redact:
        return report
    from memdoctor.reports.redaction import redacted_here

    return redacted_here(report)


def write_all(outputs: Sequence[Output], report: Report, document: Mapping[str, Any], *, force: bool) -> None:
    """Write the report to every path, JSON from ``document``, and say so."""
    from memdoctor.reports.formats import format_of
    from memdoctor.storage import write_content

    for output in outputs:
        if output.folder:
            assert isinstance(report, Diagnosis)  # it was checked
            _write_figures(output.path, report, force=force)
            continue
        format_ = format_of(output.path.name)
        assert format_ is not None  # it was checked
        write_content(output.path, format_.renderers[type(report)](report, document), force=force)
        click.echo(f"wrote {output}", err=True)


def _write_figures(folder: Path, diagnosis: Diagnosis, *, force: bool) -> None:
    """Draw all before any is written."""
    from memdoctor.reports.formats import figures_of
    from memdoctor.storage import check_writable, write_bytes

    drawn = dict(figures_of(diagnosis))
    folder.mkdir(exist_ok=True)
    for name in drawn:
        check_writable(folder / name, force=force)
    for name, content in drawn.items():
        write_bytes(folder / name, content, force=force)
        click.echo(f"wrote {folder / name}", err=True)


def next_command(text: str) -> None:
    """The closing line: what to try next."""
    click.echo(f"next: {text}", err=True)


def typed(*left_out: str) -> str:
    """What was typed after the command, to be typed again without these options and their values."""
    words = iter(sys.argv[2:])
    kept = []
    for word in words:
        name, separator, _ = word.partition("=")
        if name not in left_out:
            kept.append(word)
        elif not separator:
            next(words, None)
    return shlex.join(kept)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[int, int, int, str], None] | None]:
    """A line on standard error that tells which probe is done: rewritten on a terminal, one at the end elsewhere."""
    if quiet:
        yield None
        return
    started = time.monotonic()
    live = sys.stderr.isatty()
    count = cached = 0

    def tell(done: int, recalled: int, total: int, what: str) -> None:
        nonlocal count, cached
        count, cached = done, recalled
        if live:
            text = f"probed {done} of {total} ({what}), {time.monotonic() - started:.0f} s"
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"\r\033[K{text[:width]}", nl=False, err=True)

    if live:
        click.echo("starting torch ...", nl=False, err=True)
    try:
        yield tell
        if count and not live:
            click.echo(f"{_ran(count - cached, cached)} in {time.monotonic() - started:.0f} s", err=True)
    finally:
        if live:
            click.echo("\r\033[K", nl=False, err=True)


def _ran(probes: int, cached: int) -> str:
    ran = f"ran {probes} probe{'' if probes == 1 else 's'}"
    return f"{ran}, took {cached} from the cache," if cached else ran
