"""MD904: PyTorch holds more than the card has."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.environment.needs import MEASURED
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import left
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

MOST_RESERVED = Threshold(
    "most reserved", 1, "times the card's memory", "a card gives no more than it has; what is beyond is somewhere else"
)


def check(evidence: Evidence) -> Finding | None:
    """``max_memory_reserved`` is more than the card's memory."""
    counters, total = evidence.examination.counters, evidence.device.total_bytes
    if counters is None or counters.max_memory_reserved_bytes <= MOST_RESERVED.value * total:
        return None
    spilled = counters.max_memory_reserved_bytes - total
    return RULE.finding(
        "warning",
        f"PyTorch reserved {format_bytes(counters.max_memory_reserved_bytes)} on a card of {format_bytes(total)}: at "
        f"least {format_bytes(spilled)} are in the host's memory, and every access to them crosses the bus",
        {"spilled_bytes": spilled, "reserved_bytes": counters.max_memory_reserved_bytes, "total_bytes": total},
        at_stake_bytes=spilled,
        remedies=left(evidence, RULE.remedies),
    )


RULE = Rule(
    id="MD904",
    title="The driver has moved memory to the host",
    why=(
        "On Windows and WSL the driver gives system memory when the card is full (CUDA - Sysmem Fallback Policy). "
        "Nothing fails; steps take many times as long, and a message may show more allocated than the card holds."
    ),
    needs=(MEASURED,),
    thresholds=(MOST_RESERVED,),
    remedies=(
        Remedy('"Prefer No Sysmem Fallback" in the NVIDIA Control Panel: it then fails in place of crawling', "none"),
        Remedy("a smaller batch", "time", "batch"),
    ),
    check=check,
)
