"""MD907: memory of the card is in use, and no process that is listed holds it."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.environment.needs import LISTED_BYTES
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import GIB, format_bytes

LEAST = Threshold(
    "held by nobody", GIB, "bytes", "ours: the driver itself keeps some hundreds of megabytes of large cards"
)


def check(evidence: Evidence) -> Finding | None:
    """What is in use on the card is more than this process and the listed ones hold."""
    counters, device = evidence.examination.counters, evidence.device
    if counters is None or counters.used_bytes is None or counters.listed_bytes is None:
        return None
    own = counters.process_bytes
    ours = counters.memory_reserved_bytes + device.context_bytes if own is None else own
    unlisted = counters.used_bytes - ours - counters.listed_bytes
    if unlisted < LEAST.value:
        return None
    return RULE.finding(
        "warning",
        f"{format_bytes(counters.used_bytes)} of the card are in use; this process holds {format_bytes(ours)}, others "
        f"that are listed {format_bytes(counters.listed_bytes)}: {format_bytes(unlisted)} belong to nobody who is "
        "listed",
        {"unlisted_bytes": unlisted, "used_bytes": counters.used_bytes, "listed_bytes": counters.listed_bytes},
        at_stake_bytes=unlisted,
    )


RULE = Rule(
    id="MD907",
    title="Memory of the card belongs to no process that is listed",
    why=(
        "Inside a container NVML does not list processes outside it, and a process that died in the driver can leave "
        "its memory behind. nvidia-smi then shows memory in use and nobody who uses it."
    ),
    needs=(LISTED_BYTES,),
    thresholds=(LEAST,),
    remedies=(
        Remedy("look on the host, outside the container: nvidia-smi, fuser -v /dev/nvidia*", "none"),
        Remedy("end what is left of a run that failed", "none"),
    ),
    check=check,
)
