"""What commands print and write: reports to standard output, progress and files' names to standard error."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rich_click as click

from memdoctor.errors import UsageError

JSON_SUFFIXES = (".json", ".gz")


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def check_outputs(outputs: Sequence[Path], *, force: bool) -> None:
    """Refuse before the work what could not be written after it.

    Raises:
        UsageError: a format that is not there.
        InputError: a file that exists, or cannot be written.
    """
    from memdoctor.storage import check_writable

    for path in outputs:
        check_writable(path, force=force)
        if path.suffix not in JSON_SUFFIXES or (path.suffix == ".gz" and path.suffixes[-2:-1] != [".json"]):
            raise UsageError(
                f"cannot write {path}",
                why=f"there is no report format {path.suffix or 'without a suffix'} in this version",
                hint="a name that ends in .json or .json.gz",
            )
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise UsageError("two outputs are one file", why=f"-o {' -o '.join(map(str, outputs))}")


def write_all(outputs: Sequence[Path], document: Mapping[str, Any], *, force: bool) -> None:
    """Write the document to every path, and say so."""
    from memdoctor.storage import write_document

    for path in outputs:
        write_document(path, document, force=force)
        click.echo(f"wrote {path}", err=True)


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
