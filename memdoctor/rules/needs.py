"""Evidence that more than one rule cannot do without."""

from __future__ import annotations

from collections.abc import Callable

from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Need


def _config(evidence: Evidence) -> str | None:
    known = "hidden_size" in evidence.config or "d_model" in evidence.config or "dim" in evidence.config
    return None if known else "the model is your own code: it has no config.json that says its sizes"


def probed(lever: str) -> Need:
    """The lever was probed, or is in use and was probed without it."""

    def missing(evidence: Evidence) -> str | None:
        found = evidence.lever(lever)
        if found is None:
            return f"{lever} was not probed"
        return found.sentence if found.peak is None else None

    return Need(f"a probe with {lever} changed", missing)


MODEL_CONFIG = Need("the model's config.json", _config)
"""The sizes that config.json gives."""

SEVERAL_GPUS = Need(
    "training on several GPUs",
    lambda evidence: "training is on one GPU" if evidence.workload.strategy == "single" else None,
)
"""Something is shared among GPUs."""

EVALUATION = Need(
    "a probed evaluation (--eval)",
    lambda evidence: None if evidence.workload.evaluate else "no evaluation was probed: --eval",
)
"""Evaluation was part of the run."""


def _batch_of_one(evidence: Evidence) -> str | None:
    known = evidence.fits or evidence.workload.batch_size == 1 or evidence.changed({"batch_size": 1}) is not None
    return None if known else "batch 1 was not probed"


BATCH_OF_ONE = Need("where the target does not fit, a probe with batch 1", _batch_of_one)
"""Whether one sample fits."""


def where(condition: Callable[[Evidence], bool], need: Need) -> Need:
    """The need, for those targets alone of which the rule has something to say with it."""
    return Need(need.what, lambda evidence: need.missing(evidence) if condition(evidence) else None)


def probed_any(*levers: str) -> Need:
    """At least one of these levers was probed, or is in use and was probed without it."""
    needs = [probed(lever) for lever in levers]

    def missing(evidence: Evidence) -> str | None:
        reasons = [need.missing(evidence) for need in needs]
        return None if None in reasons else reasons[0]

    return Need(f"a probe with {' or '.join(levers)} changed", missing)
