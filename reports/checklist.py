"""The checklist as it was followed, the decisions, and the claims, on the terminal."""

from __future__ import annotations

from memdoctor.levers.wording import in_words
from memdoctor.records import ChecklistStep, Diagnosis
from memdoctor.reports.tables import console, print_labelled

_VERDICT = 12  # columns of the longest verdict and a space


def print_checklist(diagnosis: Diagnosis) -> None:
    """Print the steps with what was probed and shown at each, then the decisions; nothing where there are none."""
    out = console()
    if not diagnosis.checklist:
        return
    print_labelled(out, "The checklist, as it was followed here", "", indent=0)
    for step in diagnosis.checklist:
        label = f"{step.id:<4}{'>>>' if step.cause else ''}"
        print_labelled(out, label, step.question, style="bold red" if step.cause else "bold")
        print_labelled(out, "", _told(step))
    print_labelled(out, "The decisions", "", indent=0)
    for number, decision in enumerate(diagnosis.decisions, start=1):
        print_labelled(out, str(number), f"{decision.question} {_sentence(decision.answer)}")
        print_labelled(out, "", _sentence(decision.why))


def print_claims(diagnosis: Diagnosis) -> None:
    """Print each belief beside what was probed; nothing where no claims were judged."""
    out = console()
    if not diagnosis.claims:
        return
    print_labelled(out, "What is said, and what was probed here", "", indent=0)
    styles = {"confirmed": "bold green", "refuted": "bold red"}
    for claim in diagnosis.claims:
        style = styles.get(claim.verdict, "bold")
        print_labelled(out, claim.verdict, f'"{claim.claim}"', style=style, indent=_VERDICT)
        print_labelled(out, "", _sentence(claim.showed), indent=_VERDICT)


def cause_in_a_line(diagnosis: Diagnosis) -> str:
    """The cause with the step at which it was found: its first sentence; empty where the target fits."""
    found = next((step for step in diagnosis.checklist if step.cause), None)
    if found is None:
        return ""
    sentence, _, _ = found.showed.partition(". ")
    return f"{sentence.rstrip('.')} (checklist, step {found.id})"


def _told(step: ChecklistStep) -> str:
    probed = "; ".join(in_words(change) for change in step.probed)
    if not step.made:
        return f"Not made. {step.showed}"
    return f"{step.showed}{f' [probed: {probed}]' if probed else ''}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"
