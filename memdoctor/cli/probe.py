"""``memdoctor probe``: one step of one workload."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import rich_click as click

from memdoctor.cli.options import DEVICE, OUTPUT, TOP, asked, options
from memdoctor.cli.output import check_outputs, next_command, print_json, progress, shown_of, typed, write_all
from memdoctor.cli.verifying import verify
from memdoctor.cli.workload_options import POSITIVE, WORKLOAD
from memdoctor.records import Backend, Diagnosis


@click.command("probe")
@options(WORKLOAD, DEVICE, OUTPUT, TOP)
@click.option("--repeat", type=POSITIVE, default=1, help="Probe this often, and say whether the bytes are the same.")
@click.option(
    "--toggle", "toggles", multiple=True, metavar="KEY=VALUE",
    help="Probe with this changed too, e.g. precision=fp16. Repeatable.",
)  # fmt: skip
@click.option(
    "--verify-accumulation",
    is_flag=True,
    help="Run the training loop on the CPU with real numbers, and check its gradient accumulation; 3 where it fails.",
)
@click.option(
    "--learning-rate", type=click.FloatRange(min=0, min_open=True), metavar="RATE",
    help="Of the 20 steps over which the loss must fall, with --verify-accumulation.",
)  # fmt: skip
def command(
    repeat: int, toggles: tuple[str, ...], verify_accumulation: bool, learning_rate: float | None, **given: Any
) -> None:
    """One step of one workload; writes the examination, from which everything else can be made without torch."""
    if verify_accumulation:
        if repeat > 1 or toggles or given["top"]:
            raise click.UsageError("--verify-accumulation takes no --repeat, no --toggle and no --top.")
        verify(given, learning_rate)
        return
    if learning_rate is not None:
        raise click.UsageError("--learning-rate is of --verify-accumulation: no byte depends on it.")
    from memdoctor import doctor
    from memdoctor.reports.documents import examination_document
    from memdoctor.reports.terminal import print_diagnosis, print_repeats, print_toggles

    ask = asked(given)
    check_outputs(ask.outputs, Diagnosis, force=ask.force)
    case = doctor.open_case(**ask.case)
    changes = [doctor.parse_change(case, text) for text in toggles]
    with progress(quiet=ask.quiet) as tell:
        found = doctor.probe(
            case, changes, repeat=repeat, time_limit=ask.time_limit, progress=tell, use_cache=ask.use_cache
        )
    first = found.runs[0]
    diagnosis = replace(doctor.conclude(first), comparisons=found.comparisons, assumed=doctor.assumed_of(case, first))
    first, diagnosis, changed = shown_of((first, diagnosis, found.toggles), redact=ask.redact)
    document = examination_document(first)
    if ask.as_json:
        print_json(document)
    else:
        print_diagnosis(diagnosis, top=ask.top)
        print_toggles(changed, first.provenance.mode)
        print_repeats(found.runs)
    write_all(ask.outputs, diagnosis, document, force=ask.force)
    if not (ask.as_json or ask.quiet or ask.redact):
        again = typed("--repeat", "--toggle", *(["--backend"] if case.backend is Backend.CPU else []))
        next_command(f"memdoctor report {ask.outputs[0]}" if ask.outputs else f"memdoctor diagnose {again}")
