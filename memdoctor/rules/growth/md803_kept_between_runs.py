"""MD803: each run leaves more allocated than the one before."""

from __future__ import annotations

from itertools import pairwise

from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "growth", 0.05, "of the weights, each run", "ours: less is a metric or a batch, and no model that stays"
)
NEARNESS = Threshold(
    "nearness", 0.1, "of the weights",
    "ours: a multiple of the weights is told from the next; a report of five runs had 0.99 to 1.00 of them each",
)  # fmt: skip
_MULTIPLES = {
    1: "the model itself is retained",
    2: "the model and its gradients are retained",
    3: "the model and its optimizer's state are retained",
    4: "the model, its gradients and its optimizer's state are retained",
}
RUNS = Need(
    "what is allocated after each of several runs in one process",
    lambda evidence: None if len(evidence.runs_allocated_bytes) > 1 else "nobody watched several runs in one process",
)


def check(evidence: Evidence) -> Finding | None:
    """Between any two runs the rest grows by a share of the weights."""
    runs, weights = evidence.runs_allocated_bytes, evidence.most_held[Category.PARAMETERS]
    growth = [later - earlier for earlier, later in pairwise(runs)]
    least = min(growth)
    if least <= 0 or least < LEAST_SHARE.value * weights:
        return None
    times = sum(growth) / len(growth) / weights
    near = abs(times - round(times)) <= NEARNESS.value
    meaning = f": {_MULTIPLES[round(times)]}" if near and round(times) in _MULTIPLES else ""
    return RULE.finding(
        "warning",
        f"after {len(runs)} runs {', '.join(map(format_bytes, runs))} are allocated: {format_bytes(least)} or more "
        f"each run, on average {times:.2f} times the weights ({format_bytes(weights)}){meaning}",
        {
            "runs": len(runs),
            "least_growth_bytes": least,
            "weights_bytes": weights,
            "times_the_weights": round(times, 4),
        },
        at_stake_bytes=runs[-1] - runs[0],
    )


RULE = Rule(
    id="MD803",
    title="Each run leaves more allocated than the one before",
    why=(
        "A model is freed when the last reference to it is. A Trainer in a list of results, a callback, a scheduler "
        "that holds its optimizer, an exception's traceback or a cycle that was not collected keep it over the next "
        "run."
    ),
    needs=(RUNS,),
    thresholds=(LEAST_SHARE, NEARNESS),
    remedies=(
        Remedy("del what holds it, then gc.collect(), then torch.cuda.empty_cache()", "none"),
        Remedy("a process for each run", "time"),
    ),
    check=check,
)
