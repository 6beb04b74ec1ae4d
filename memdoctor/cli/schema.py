"""``memdoctor schema``: JSON Schema of what memdoctor writes."""

from __future__ import annotations

import rich_click as click

from memdoctor.cli.options import VERBOSE
from memdoctor.cli.output import print_json


@click.command("schema")
@click.argument("kind", type=click.Choice(["diagnosis", "examination", "verification", "fit"]), default="diagnosis")
@VERBOSE
def command(kind: str) -> None:
    """JSON Schema of the report (diagnosis), of a saved examination, of a verification or of a fit."""
    from memdoctor.reports.documents import schema

    print_json(schema(kind))
