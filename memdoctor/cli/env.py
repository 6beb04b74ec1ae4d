"""``memdoctor env``: the environment, for a bug report, and what is wrong with it."""

from __future__ import annotations

import os

import rich_click as click

from memdoctor.cli.options import AS_JSON, VERBOSE, options
from memdoctor.cli.output import print_json


@click.command("env")
@options((AS_JSON, VERBOSE))
def command(as_json: bool) -> None:
    """The environment, for a bug report: versions, the machine, its GPUs and who uses them; and what is wrong.

    Ends with 0 whatever is wrong.
    """
    from memdoctor.environment import document, facts, find_problems, gather

    environment = gather(os.environ)
    if as_json:
        print_json(document(environment))
        return
    lines = facts(environment)
    width = max(map(len, lines))
    for name, value in lines.items():
        click.echo(f"{name:<{width}}  {value}")
    for problem in find_problems(environment):
        click.echo(f"\nproblem: {problem.what}\n  why: {problem.why}\n  try: {problem.hint}")
