"""A diagnosis on the terminal: the view, and the parts of it that were asked for."""

from __future__ import annotations

from memdoctor.records import Diagnosis


def show_diagnosis(diagnosis: Diagnosis, *, top: int, details: bool, checklist: bool, claims: bool = False) -> None:
    """Print the view, then what was asked for beside it: findings and levers, the checklist, claims."""
    from memdoctor.reports.advice import print_details
    from memdoctor.reports.checklist import print_checklist, print_claims
    from memdoctor.reports.terminal import print_diagnosis

    print_diagnosis(diagnosis, top=top)
    if details:
        print_details(diagnosis)
    if checklist:
        print_checklist(diagnosis)
    if claims or details:
        print_claims(diagnosis)
