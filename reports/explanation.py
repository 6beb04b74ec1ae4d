"""Rules to read: on the terminal one page, or the list; in Markdown all of them."""

from __future__ import annotations

from collections.abc import Iterator

from memdoctor.records import Explanation, RulePage, ThresholdLine
from memdoctor.reports.tables import console, print_labelled

_INDENT = 12
_OWN_PROBE = "nothing beside the target's own probe"

INTRODUCTION = """\
# Rules

What memdoctor looks for, by family. A rule is named for the pattern that it finds; what helps is listed apart, with
what it costs at most. A rule whose evidence is missing says so, and does not pass. `memdoctor explain MD201` prints one
of these pages, `memdoctor explain MD2` a family. Written by `python docs/update_rules.py`; a test holds it to the code.
"""


def print_explanation(explanation: Explanation) -> None:
    """One rule as a page, several as a list by family."""
    out = console()
    if len(explanation.rules) == 1:
        for label, text in _page(explanation.rules[0]):
            print_labelled(out, label, text, indent=_INDENT)
        return
    family = ""
    for rule in explanation.rules:
        if rule.family != family:
            family = rule.family
            out.print(f"{rule.id[:3]} {family}", style="bold")
        print_labelled(out, f"  {rule.id}", rule.title, style="", indent=10)


def _page(rule: RulePage) -> Iterator[tuple[str, str]]:
    yield rule.id, rule.title
    yield "family", f"{rule.id[:3]}, {rule.family}"
    yield "why", rule.why
    for need in rule.needs or (_OWN_PROBE,):
        yield "needs", need
    for threshold in rule.thresholds:
        yield "threshold", _threshold(threshold)
    for remedy in rule.remedies:
        yield "remedy", f"{remedy.text} ({remedy.cost_in_words})"


def _threshold(threshold: ThresholdLine) -> str:
    return f"{threshold.name}: {threshold.value:g} {threshold.unit} [{threshold.source}]"


def markdown(explanation: Explanation) -> str:
    """All pages as one document, with a list of contents by family."""
    families = dict.fromkeys((rule.id[:3], rule.family) for rule in explanation.rules)
    parts = [INTRODUCTION]
    for key, about in families:
        rules = [rule for rule in explanation.rules if rule.id.startswith(key)]
        parts.append(f"## {key}xx: {about}\n")
        parts.extend(map(_section, rules))
    return "\n".join(parts)


def _section(rule: RulePage) -> str:
    lines = [f"### {rule.id}: {rule.title}", "", rule.why, ""]
    lines += [f"- **Needs** {'; '.join(rule.needs) or _OWN_PROBE}."]
    lines += [f"- **Threshold** {_threshold(threshold)}" for threshold in rule.thresholds]
    lines += [f"- **Remedy** {remedy.text} *({remedy.cost_in_words})*" for remedy in rule.remedies]
    return "\n".join([*lines, ""])
