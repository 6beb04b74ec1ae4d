"""Whether a loop did what a loop is asked to do; else one clear error. What it did wrong beyond that is for checks."""

from __future__ import annotations

from memdoctor.errors import InputError
from memdoctor.probes.verification.custom_loop import SIGNATURE
from memdoctor.probes.verification.numbers import Numbers


def check_contract(name: str, seen: Numbers, accumulation: int) -> None:
    """Refuse what nothing can be said of.

    Raises:
        InputError: the loop trains nothing, on other data, or with another optimizer.
    """
    count = len(seen.batches)
    expected = list(range(len(seen.taken)))
    own = ", ".join(sorted(seen.other_optimizers))
    others = f": it stepped {own} of its own" if own else ""
    complaints = (
        (seen.closures, "called optimizer.step with a closure, so that gradients are made within the step"),
        (not seen.taken and not seen.unknown_calls, "never called the model with a gradient to come"),
        (seen.unknown_calls > 0, f"called the model on {seen.unknown_calls} batches that it was not given"),
        (seen.taken != expected, f"took the micro-batches in the order {_told(seen.taken)}, not 0 to {count - 1}"),
        (len(seen.taken) < count - count % accumulation, f"took {len(seen.taken)} of the {count} micro-batches"),
        (not seen.backwards, "never called backward"),
        (not seen.steps, f"never stepped the optimizer that it was given{others}"),
        (own, f"stepped the optimizer that it was given, and {own} of its own"),
    )
    for holds, complaint in complaints:  # the first that holds is what the others come from
        if holds:
            raise InputError(
                f"the loop {name} {complaint}",
                why=f"{SIGNATURE} goes once over the micro-batches it is given, in order, calling model(...), "
                f"backward() and, after every {accumulation} of them and after the leftover ones, optimizer.step() "
                "without a closure",
                hint="docs/verification.md has an example",
            )


def _told(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return f"{shown} ..." if len(numbers) > 12 else shown
