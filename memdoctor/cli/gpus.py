"""``memdoctor gpus``: what the catalogue knows of GPUs."""

from __future__ import annotations

import dataclasses

import rich_click as click

from memdoctor.cli.options import LISTING, options
from memdoctor.cli.output import print_json


@click.command("gpus")
@options(LISTING)
def command(pattern: str | None, as_json: bool, sources: bool) -> None:
    """The GPUs that the catalogue knows; with PATTERN, those whose name contains it."""
    from memdoctor.catalogue import gpus
    from memdoctor.reports.tables import print_table, symbol
    from memdoctor.units import format_bytes

    found = [entry for entry in gpus() if pattern is None or pattern.lower() in entry.name.lower()]
    if as_json:
        print_json({"gpus": [dataclasses.asdict(entry) for entry in found]})
        return
    rows = [
        (
            entry.name, format_bytes(entry.total_bytes), entry.compute_capability,
            f"{format_bytes(entry.context_bytes)} {symbol('±', '+-')} {format_bytes(entry.context_error_bytes)}",
            f"total: {entry.total_source}; context: {entry.context_source}",
        )
        for entry in found
    ]  # fmt: skip
    print_table(("name", "total for CUDA", "capability", "context", "source"), rows, keep=5 if sources else 4)
