"""The terminal view of a verification: the verdict first, a table of checks, and why those failed that did."""

from __future__ import annotations

from memdoctor.records import Check, Status, Verification
from memdoctor.reports.tables import console, print_labelled, print_table
from memdoctor.units import format_bytes

_WORDS = {Status.PASSED: "passed", Status.FAILED: "FAILED", Status.NOT_APPLICABLE: "not made"}


def print_verification(found: Verification) -> None:
    """Print the view to standard output."""
    out = console()
    print_labelled(out, f"{verdict_in_words(found)}: ", setting_of(found), style=_style(found))
    rows = [
        (check.title, _WORDS[check.status], figure_in_words(check.value), figure_in_words(check.tolerance))
        for check in found.checks
    ]
    print_table(("check", "result", "value", "tolerance"), rows, keep=4)
    told: set[str] = set()
    for check in found.checks:
        if check.status is Status.FAILED:
            print_labelled(out, "why", f"{check.title}: {_not_yet(told, check.cause)}")
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


def verdict_in_words(found: Verification) -> str:
    """Whether accumulation is right, and how many checks say so."""
    made = [check for check in found.checks if check.status is not Status.NOT_APPLICABLE]
    if found.passed:
        return f"Gradient accumulation is right, {len(made)} of {len(made)} checks passed"
    counted = f"{len(found.failed)} of {len(made)} checks failed"
    if _is_wrong(found):
        return f"Gradient accumulation is WRONG, {counted}"
    beside = " and ".join(_beside(check) for check in found.failed)
    return f"Gradients are right, but {beside}, {counted}"


def _is_wrong(found: Verification) -> bool:
    """Memory and the loss say nothing of the gradients, which have checks of their own."""
    return any(check.id not in ("peak", "loss") for check in found.failed)


def _beside(check: Check) -> str:
    if check.id == "peak":
        return f"{format_bytes(abs(int(check.value or 0)))} of memory are not explained"
    return "the loss does not fall"


def _style(found: Verification) -> str:
    return "bold green" if found.passed else "bold red" if _is_wrong(found) else "bold yellow"


def _not_yet(told: set[str], cause: str) -> str:
    """The clauses of a cause that no check before it has told."""
    clauses = cause.split("; ")
    new = [clause for clause in clauses if clause not in told]
    told.update(clauses)
    return "; ".join([*new, *(["and as above"] if len(new) < len(clauses) else [])])


def setting_of(found: Verification) -> str:
    """What was trained, by which loop, and how."""
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


def figure_in_words(value: float | None) -> str:
    """A figure to two digits; a dash where there is none."""
    return "-" if value is None else f"{value:.2g}" if value else "0"
