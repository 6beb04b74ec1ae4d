"""``memdoctor models``: what the catalogue knows of checkpoints."""

from __future__ import annotations

import dataclasses

import rich_click as click

from memdoctor.cli.options import LISTING, options
from memdoctor.cli.output import print_json


@click.command("models")
@options(LISTING)
def command(pattern: str | None, as_json: bool, sources: bool) -> None:
    """The checkpoints that the catalogue knows; with PATTERN, those whose name contains it."""
    from memdoctor.catalogue import models
    from memdoctor.reports.tables import print_table

    found = [entry for entry in models() if pattern is None or pattern.lower() in entry.name.lower()]
    if as_json:
        print_json({"models": [dataclasses.asdict(dataclasses.replace(e, config=dict(e.config))) for e in found]})
        return
    rows = [
        (entry.name, entry.model_type, f"{entry.parameters:,}", str(entry.max_seq_length or "any"), entry.source)
        for entry in found
    ]
    columns = ("name", "type", "parameters", "longest input", "source")
    print_table(columns, rows, keep=5 if sources else 4)
