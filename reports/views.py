"""Every kind of report on the terminal."""

from __future__ import annotations

from memdoctor.records import Diagnosis, Difference, Fit, Verification


def print_report(report: Diagnosis | Difference | Fit | Verification) -> None:
    """Print it, as its command does."""
    from memdoctor.reports.difference import print_difference
    from memdoctor.reports.fit import print_fit
    from memdoctor.reports.terminal import print_diagnosis
    from memdoctor.reports.verification import print_verification

    match report:
        case Diagnosis():
            print_diagnosis(report)
        case Difference():
            print_difference(report)
        case Fit():
            print_fit(report)
        case Verification():
            print_verification(report)
