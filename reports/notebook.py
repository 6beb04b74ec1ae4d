"""A report in a notebook: a fragment of HTML with its drawing in it, without scripts, and nothing fetched."""

from __future__ import annotations

import sys
from typing import Any

from markupsafe import Markup

from memdoctor.levers.wording import in_words
from memdoctor.records import Diagnosis, Difference, Fit, Verification
from memdoctor.reports.advice import time_of
from memdoctor.reports.checklist import cause_in_a_line
from memdoctor.reports.html.svg.capacity import card_bar
from memdoctor.reports.palette import COLOURS
from memdoctor.reports.text import cut, sentence
from memdoctor.reports.wording import peak_sum, setting_of
from memdoctor.units import format_bytes

_MOST = 5  # entries of the plan
# In a notebook there is no page whose styles could be used; these are all that the fragment needs.
_STYLE = Markup(
    "<style>.memdoctor{font-family:system-ui,sans-serif;max-width:1100px;--back:#fff;--soft:#57606a;--raised:#f6f8fa;"
    "--mark:#b00020}.memdoctor svg.wide{width:100%;height:auto}.memdoctor svg.narrow{display:none}"
    ".memdoctor .free{fill:none;stroke:var(--soft);stroke-dasharray:4 3}"
    ".memdoctor .missing,.memdoctor .stripes{fill:none;stroke:var(--mark);stroke-width:2}"
    ".memdoctor .capacity{stroke:var(--mark);stroke-width:2}.memdoctor .key{display:inline-block;margin-right:1em}"
    "</style>"
)


def in_a_line(report: Diagnosis | Difference | Fit | Verification) -> str:
    """What it says first."""
    match report:
        case Diagnosis():
            return f"{report.verdict.sentence.partition(': ')[0]}: {setting_of(report)}"
        case Difference():
            return report.sentence
        case Fit():
            return f"{report.workload.model}: {len(report.cells) or len(report.cards)} cells"
    return f"{'passed' if report.passed else 'failed'}, {len(report.checks)} checks"


def fragment(report: Diagnosis | Difference | Fit | Verification) -> str:
    """The fragment; everything in it from the user's files is escaped."""
    match report:
        case Diagnosis():
            inner = _diagnosis(report)
        case Difference():
            inner = _difference(report)
        case _:
            inner = Markup("<p>{}</p>").format(cut(in_a_line(report), 500))
    return str(Markup('<div class="memdoctor">{}{}</div>').format(_STYLE, inner))


def _diagnosis(diagnosis: Diagnosis) -> Markup:
    headline, _, why = diagnosis.verdict.sentence.partition(": ")
    mark = "✓" if diagnosis.fits else "✗"
    told = [
        setting_of(diagnosis),
        f"Peak: {peak_sum(diagnosis)}",
        f"Why: {cause_in_a_line(diagnosis) or sentence(why)}",
    ]
    lines = Markup("").join(Markup("<p>{}</p>").format(cut(line, 600)) for line in told)
    rows = Markup("").join(
        Markup("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>").format(
            cut(in_words(entry.change)), format_bytes(entry.peak.reserved_bytes), "✓" if entry.fits else "✗",
            time_of(entry),
        )
        for entry in diagnosis.plan[:_MOST]
    )  # fmt: skip
    head = "<tr><th>what to do, each probed</th><th>reserved</th><th>fits</th><th>step time</th></tr>"
    plan = Markup("<table><thead>{}</thead><tbody>{}</tbody></table>").format(Markup(head), rows) if rows else ""
    bar = card_bar(diagnosis.breakdown, diagnosis.device, diagnosis.budgets)
    title = Markup("<h3>{} {}</h3>").format(mark, cut(headline, 200))
    return title + lines + bar + _legend(diagnosis) + Markup("{}").format(plan)


def _difference(difference: Difference) -> Markup:
    sides = (difference.a, difference.b)
    whole = max(max(side.device.total_bytes, side.device.total_bytes - side.breakdown.free) for side in sides)
    bars = Markup("").join(
        Markup("<p>{}: {}</p>{}").format(letter, cut(side.name), card_bar(side.breakdown, side.device, whole=whole))
        for letter, side in zip("AB", sides, strict=True)
    )
    cautions = Markup("").join(Markup("<p>{}</p>").format(cut(text, 500)) for text in difference.cautions)
    return Markup("<h3>{}</h3>").format(cut(difference.sentence, 500)) + cautions + bars


def _legend(diagnosis: Diagnosis) -> Markup:
    shown = [(name, size) for name, size in diagnosis.breakdown.items() if size and name in COLOURS]
    box = '<svg width="12" height="12"><rect width="12" height="12" fill="{}"/></svg>'
    keys = (
        Markup('<span class="key">' + box + " {} {}</span>").format(
            COLOURS[name], name.replace("_", " "), format_bytes(size)
        )
        for name, size in shown
    )  # fmt: skip
    return Markup("<p>{}</p>").format(Markup("").join(keys))


def display_in_notebook(report: Any) -> bool:
    """Show it where a notebook runs; whether one does. IPython is looked for, and never imported for it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not getattr(shell, "kernel", None):
        return False
    sys.modules["IPython.display"].display(report)
    return True
