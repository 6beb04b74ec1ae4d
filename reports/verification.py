"""The terminal view of a verification: the verdict first, a table of checks, and why those failed that did."""

from __future__ import annotations

from memdoctor.records import Status, Verification
from memdoctor.reports.tables import console, print_labelled, print_table

_WORDS = {Status.PASSED: "passed", Status.FAILED: "FAILED", Status.NOT_APPLICABLE: "not made"}


def print_verification(found: Verification) -> None:
    """Print the view to standard output."""
    out = console()
    print_labelled(out, f"{_verdict(found)}: ", _setting(found), style="bold green" if found.passed else "bold red")
    rows = [
        (check.title, _WORDS[check.status], _figure(check.value), _figure(check.tolerance)) for check in found.checks
    ]
    print_table(("check", "result", "value", "tolerance"), rows, keep=4)
    for check in found.checks:
        if check.status is Status.FAILED:
            print_labelled(out, "why", f"{check.title}: {check.cause}")
            print_labelled(out, "", check.sentence)
        elif check.status is Status.NOT_APPLICABLE:
            print_labelled(out, "not", f"{check.title}: {check.sentence}")
    for check in found.checks:
        if check.id in ("peak", "loss") and check.status is Status.PASSED:
            print_labelled(out, check.id, check.sentence)
    for note in found.provenance.notes:
        print_labelled(out, "note", note)
    if found.assumed:
        print_labelled(out, "assumed", ", ".join(found.assumed))


def _verdict(found: Verification) -> str:
    made = [check for check in found.checks if check.status is not Status.NOT_APPLICABLE]
    if found.passed:
        return f"Gradient accumulation is right, {len(made)} of {len(made)} checks passed"
    return f"Gradient accumulation is WRONG, {len(found.failed)} of {len(made)} checks failed"


def _setting(found: Verification) -> str:
    workload, plan = found.workload, found.plan
    loops = {
        "trainer": f"the Trainer of transformers {found.provenance.transformers}",
        "custom": "memdoctor's loop by hand",
    }
    task = "" if ":" in workload.model else f" ({workload.task.value})"  # a factory's head is its own
    words = [
        f"{workload.model}{task}", loops.get(plan.loop, f"the loop {plan.loop}"),
        f"{workload.gradient_accumulation_steps} micro-batches of {workload.batch_size} x {workload.seq_length}",
        workload.precision.value, workload.optimizer, f"on {found.device.name}",
    ]  # fmt: skip
    return f"{', '.join(words)}; measured on the CPU in {found.provenance.seconds:.0f} s"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}" if value else "0"
