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
    others = f": it stepped {', '.join(sorted(seen.other_optimizers))} of its own" if seen.other_optimizers else ""
    complaints = {
        "never called the model with a gradient to come": not seen.taken and not seen.unknown_calls,
        f"called the model on {seen.unknown_calls} batches that it was not given": seen.unknown_calls > 0,
        f"took the micro-batches in the order {_told(seen.taken)}, not 0 to {count - 1}": seen.taken != expected,
        f"took {len(seen.taken)} of the {count} micro-batches": len(seen.taken) < count - count % accumulation,
        "never called backward": not seen.backwards,
        f"never stepped the optimizer that it was given{others}": not seen.steps,
        f"stepped the optimizer that it was given, and {', '.join(sorted(seen.other_optimizers))} of its own": bool(
            seen.other_optimizers
        ),
    }
    for complaint, holds in complaints.items():
        if holds:
            raise InputError(
                f"the loop {name} {complaint}",
                why=f"{SIGNATURE} goes once over the micro-batches it is given, in order, calling model(...), "
                f"backward() and, after every {accumulation} of them and after the leftover ones, optimizer.step()",
                hint="docs/verification.md has an example",
            )


def _told(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return f"{shown} ..." if len(numbers) > 12 else shown
