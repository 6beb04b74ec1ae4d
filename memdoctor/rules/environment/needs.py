"""What only a run that was measured on a GPU can tell."""

from __future__ import annotations

from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Need

SIMULATED = "the run was simulated: no driver counted anything"


def _counters(evidence: Evidence) -> str | None:
    return SIMULATED if evidence.examination.counters is None else None


def _process(evidence: Evidence) -> str | None:
    counters = evidence.examination.counters
    if counters is None:
        return SIMULATED
    return "NVML does not tell what this process holds" if counters.process_bytes is None else None


def _used(evidence: Evidence) -> str | None:
    counters = evidence.examination.counters
    if counters is None:
        return SIMULATED
    told = counters.used_bytes is not None and counters.listed_bytes is not None
    return None if told else "NVML does not tell who is on the card"


MEASURED = Need("a run measured on a GPU", _counters)
"""PyTorch's own counters."""

PROCESS_BYTES = Need("what the driver counts for this process", _process)
"""NVML's figure for this process."""

LISTED_BYTES = Need("what the driver counts for everybody on the card", _used)
"""What is in use, and what listed processes hold of it."""
