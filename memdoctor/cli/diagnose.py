"""``memdoctor diagnose``: the front door."""

from __future__ import annotations

from typing import Any

import rich_click as click

from memdoctor.cli.options import CLAIMS, DEVICE, OUTPUT, PARTS, TOP, asked, options
from memdoctor.cli.output import check_outputs, next_command, print_json, progress, shown_of, typed, write_all
from memdoctor.cli.showing import show_diagnosis
from memdoctor.cli.workload_options import WORKLOAD
from memdoctor.records import Diagnosis


@click.command("diagnose")
@options(WORKLOAD, DEVICE, OUTPUT, TOP, PARTS, CLAIMS)
def command(details: bool, checklist: bool, claims: bool, **given: Any) -> None:
    """Why does (or did) this run not fit, and what makes it fit?

    Probes the training step at the target, at batch 1 and 2, and with every lever pulled, on a simulated GPU or on your
    own; says where the memory is, and recommends changes of which each was probed.
    """
    from memdoctor import doctor
    from memdoctor.reports.documents import diagnosis_document

    ask = asked(given)
    check_outputs(ask.outputs, Diagnosis, force=ask.force)
    case = doctor.open_case(**ask.case)
    with progress(quiet=ask.quiet) as tell:
        diagnosis = doctor.diagnose(
            case, claims=claims, time_limit=ask.time_limit, progress=tell, use_cache=ask.use_cache
        )
    diagnosis = shown_of(diagnosis, redact=ask.redact)
    document = diagnosis_document(diagnosis)
    if ask.as_json:
        print_json(document)
    else:
        show_diagnosis(diagnosis, top=ask.top, details=details, checklist=checklist, claims=claims)
    write_all(ask.outputs, diagnosis, document, force=ask.force)
    if not (ask.as_json or ask.quiet or ask.redact):
        next_command(
            f"memdoctor report {ask.outputs[0]}" if ask.outputs else f"memdoctor diagnose {typed()} -o report.json"
        )
