"""The command: options, progress on standard error, and the one place where errors become exit codes."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import click

from memdoctor.errors import InputError, MeasureError, MemdoctorError, UsageError
from memdoctor.probes.record import shell, tables
from memdoctor.probes.record.files import TABLES, installed_versions, open_folder, recordings, write_run
from memdoctor.probes.record.grid import GRIDS, Cell, choose
from memdoctor.probes.record.overhead import CELLS, Overhead, overhead_of, run_once
from memdoctor.probes.record.runner import Limits, Recorder, Result, State
from memdoctor.storage import check_writable
from memdoctor.units import format_bytes

EXIT_INTERRUPTED = 130
_SECONDS = click.FloatRange(min=0, min_open=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--grid", default="default", show_default=True, help=f"Which cells: {' or '.join(GRIDS)}.")
@click.option("--cells", "patterns", multiple=True, metavar="PATTERN", help="Only these, e.g. 'bert-base-*-ckpt*'.")
@click.option("--list", "only_list", is_flag=True, help="Print the cells and why each was chosen; touches no GPU.")
@click.option("--out", type=click.Path(path_type=Path), help="Where recordings and tables go.")
@click.option("--table", "tabled", type=click.Path(path_type=Path), help="Only compare the recordings there; no GPU.")
@click.option("--no-table", is_flag=True, help="Only record; --table compares later, on any machine.")
@click.option("--time-limit", type=_SECONDS, default=240.0, show_default=True, help="Seconds for all recording.")
@click.option("--cell-time-limit", type=_SECONDS, default=60.0, show_default=True, help="Seconds for one cell.")
@click.option("--force", is_flag=True, help="Record anew what is recorded already.")
@click.option("--with-oom", is_flag=True, help="Also what will not fit, and a batch that no card of this size holds.")
@click.option("--check-overhead", is_flag=True, help=f"Run the first {CELLS} cells once more, without recording.")
def record(
    grid: str,
    patterns: tuple[str, ...],
    only_list: bool,
    out: Path | None,
    tabled: Path | None,
    no_table: bool,
    time_limit: float,
    cell_time_limit: float,
    force: bool,
    with_oom: bool,
    check_overhead: bool,
) -> None:
    """Record training steps on this machine's GPU, and compare each with its simulation."""
    cells = choose(grid, patterns)
    if only_list:
        for cell in cells:
            click.echo(f"{cell.name:<52} {cell.needs_mib:>6} MiB  {cell.why}")
        return
    shell.reach_this_checkout()
    if tabled is not None:
        recordings(tabled)
        check_writable((out or tabled) / TABLES[0], force=True)
        _compare(tabled, out or tabled)
        return
    if out is None:
        raise UsageError("where should recordings go?", hint="--out DIR; --list shows what would be recorded")
    open_folder(out)
    limits = Limits(time_limit, cell_time_limit)
    _record(cells, out, limits, force=force, with_oom=with_oom)
    overheads = _overheads(cells[:CELLS], limits) if check_overhead else []
    if not no_table:
        _compare(out, out, overheads)


def _record(cells: tuple[Cell, ...], out: Path, limits: Limits, *, force: bool, with_oom: bool) -> None:
    """Record, and write what became of each cell, also where the run is ended from outside.

    Raises:
        MeasureError: nothing was recorded.
    """
    results: list[Result] = []
    started = time.monotonic()
    try:
        with shell.measuring(limits.cell) as measure:
            recorder = Recorder(measure, out, installed_versions(), limits, force=force, running_out=with_oom)
            for result in recorder.run(cells):
                results.append(result)
                _tell(result, len(results), len(cells) + with_oom)
    except BaseException:  # interrupted, or the disk is full: what became of the cells is told if it can be
        with suppress(InputError):
            write_run(out, results)
        raise
    write_run(out, results)
    states = Counter(result.state for result in results)
    counted = ", ".join(f"{count} {state}" for state in State if (count := states[state]))
    click.echo(f"{counted}, in {time.monotonic() - started:.0f} s", err=True)
    if not states[State.RECORDED] + states[State.RECORDED_BEFORE]:
        first = next((result for result in results if result.state is State.FAILED), results[0])
        raise MeasureError("nothing was recorded", why=first.reason, hint=first.hint)


def _tell(result: Result, done: int, total: int) -> None:
    size = f", {format_bytes(result.size_bytes)} in {result.seconds:.1f} s" if result.state is State.RECORDED else ""
    why = f": {result.reason}" if result.reason else ""
    click.echo(f"{done:>3} of {total}  {result.cell}: {result.state}{size}{why}", err=True)
    if result.detail:
        click.echo(result.detail, err=True)


def _overheads(cells: tuple[Cell, ...], limits: Limits) -> list[Overhead]:
    """Both ways of each cell; those that cannot be run are told and left out."""
    found = []
    for cell in cells:
        try:
            found.append(overhead_of(cell, partial(run_once, device=shell.THIS_GPU, time_limit=limits.cell)))
        except MeasureError as error:
            click.echo(f"Error: {error}", err=True)
    return found


def _compare(folder: Path, out: Path, overheads: list[Overhead] | None = None) -> None:
    def progress(done: int, total: int) -> None:
        if done in (1, total):
            click.echo(f"simulated {done} of {total}", err=True)

    comparisons = shell.compare_folder(folder, progress)
    click.echo(tables.short(comparisons))
    for path in shell.write_tables(out, comparisons, folder, overheads or []):
        click.echo(f"wrote {path}", err=True)


def main() -> NoReturn:
    """Run the command; ends the process with an exit code of ``memdoctor/errors.py``."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = record.main(standalone_mode=False, prog_name="python -m memdoctor.probes.record")
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except MemdoctorError as error:
        click.echo(f"Error: {error}", err=True)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted; what is recorded is whole, and the same command goes on from there.", err=True)
        code = EXIT_INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)


def _terminate(number: int, frame: object) -> NoReturn:  # noqa: ARG001 - what a signal handler is called with
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
