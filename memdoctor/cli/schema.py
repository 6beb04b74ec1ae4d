"""``memdoctor schema``: JSON Schema of what memdoctor writes."""

from __future__ import annotations

import rich_click as click

from memdoctor.cli.options import VERBOSE
from memdoctor.cli.output import print_json

# Those of memdoctor.reports.documents, which help has no time to load; a test holds them together.
KINDS = ("diagnosis", "examination", "verification", "fit", "difference", "explanation")


@click.command("schema")
@click.argument("kind", type=click.Choice(KINDS), default="diagnosis")
@VERBOSE
def command(kind: str) -> None:
    """JSON Schema of the report (diagnosis), or of another kind of document that memdoctor writes."""
    from memdoctor.reports.documents import schema

    print_json(schema(kind))
