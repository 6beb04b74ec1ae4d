"""``memdoctor diagnose``: the front door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from memdoctor.cli.options import DEVICE, OUTPUT, TOP, WORKLOAD, options, settings_of
from memdoctor.cli.output import check_outputs, next_command, print_json, progress, write_all


@click.command("diagnose")
@options(WORKLOAD, DEVICE, OUTPUT, TOP)
def command(
    model: str,
    gpu: str | None,
    memory: str | None,
    backend: str,
    offline: bool,
    time_limit: float,
    outputs: tuple[Path, ...],
    as_json: bool,
    force: bool,
    quiet: bool,
    verbose: bool,
    top: int | None,
    **workload: Any,
) -> None:
    """Why does (or did) this run not fit, and what makes it fit?

    Probes the training step at the target, at batch 1 and 2, and with length, precision and checkpointing
    changed, each on a simulated GPU, and says where the memory is.
    """
    from memdoctor import doctor
    from memdoctor.reports.documents import diagnosis_document
    from memdoctor.reports.terminal import print_diagnosis

    check_outputs(outputs, force=force)
    case = doctor.open_case(model, gpu=gpu, memory=memory, backend=backend, offline=offline, **settings_of(workload))
    with progress(quiet=quiet) as tell:
        diagnosis = doctor.diagnose(case, time_limit=time_limit, progress=tell)
    document = diagnosis_document(diagnosis)
    if as_json:
        print_json(document)
    else:
        print_diagnosis(diagnosis, top=top or 0)
    write_all(outputs, document, force=force)
    if not as_json and not quiet:
        next_command(_suggestion(model, outputs))


def _suggestion(model: str, outputs: tuple[Path, ...]) -> str:
    if outputs:
        return f"memdoctor report {outputs[0]}"
    return f"memdoctor diagnose --model {model} -o report.json --top 10"
