"""``memdoctor explain``: what a rule looks for, why, and what helps."""

from __future__ import annotations

import rich_click as click

from memdoctor.cli.options import AS_JSON, VERBOSE, options
from memdoctor.cli.output import print_json


@click.command("explain")
@click.argument("rule", required=False)
@options((AS_JSON, VERBOSE))
def command(rule: str | None, as_json: bool) -> None:
    """The page of a rule: what it finds, why that matters, what it needs, its thresholds, and what helps at what cost.

    RULE is the id of a finding, such as MD201, or of a family, such as MD2. Without it all rules are listed.
    """
    from memdoctor.rules.pages import explain

    explanation = explain(rule)
    if as_json:
        from memdoctor.reports.documents import explanation_document

        print_json(explanation_document(explanation))
        return
    from memdoctor.reports.explanation import print_explanation

    print_explanation(explanation)
