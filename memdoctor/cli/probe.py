"""``memdoctor probe``: one step of one workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from memdoctor.cli.options import DEVICE, OUTPUT, POSITIVE, TOP, WORKLOAD, options, settings_of
from memdoctor.cli.output import check_outputs, next_command, print_json, progress, write_all


@click.command("probe")
@options(WORKLOAD, DEVICE, OUTPUT, TOP)
@click.option("--repeat", type=POSITIVE, default=1, help="Probe this often, and say whether the bytes are the same.")
@click.option(
    "--toggle", "toggles", multiple=True, metavar="KEY=VALUE",
    help="Probe with this changed too, e.g. precision=fp16. Repeatable.",
)  # fmt: skip
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
    repeat: int,
    toggles: tuple[str, ...],
    **workload: Any,
) -> None:
    """One step of one workload; writes the examination, from which everything else can be made without torch."""
    from memdoctor import doctor
    from memdoctor.reports.documents import examination_document
    from memdoctor.reports.terminal import print_diagnosis, print_repeats, print_toggles

    check_outputs(outputs, force=force)
    case = doctor.open_case(model, gpu=gpu, memory=memory, backend=backend, offline=offline, **settings_of(workload))
    changes = [doctor.parse_change(case, text) for text in toggles]
    with progress(quiet=quiet) as tell:
        runs, toggled = doctor.probe(case, changes, repeat=repeat, time_limit=time_limit, progress=tell)
    document = examination_document(runs[0])
    if as_json:
        print_json(document)
    else:
        print_diagnosis(doctor.conclude(runs[0]), top=top or 0)
        print_toggles(toggled)
        print_repeats(runs)
    write_all(outputs, document, force=force)
    if not as_json and not quiet:
        next_command(f"memdoctor report {outputs[0]}" if outputs else f"memdoctor diagnose --model {model}")
