"""MD607: a threshold of garbage collection is set, and nothing is collected."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Remedy, Rule, Threshold

THRESHOLD, FRACTION = "garbage_collection_threshold", "per_process_memory_fraction"
WHOLE_CARD = Threshold(
    "memory fraction", 1.0, "of the card",
    "CUDACachingAllocator.cpp, DeviceCachingAllocator::malloc: blocks are collected only where a fraction was set",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """The settings have the one without the other."""
    settings = dict(entry.partition(":")[::2] for entry in evidence.device.alloc_conf.replace(" ", "").split(","))
    threshold, fraction = float(settings.get(THRESHOLD, 0)), float(settings.get(FRACTION, WHOLE_CARD.value))
    if threshold == 0 or fraction < WHOLE_CARD.value:
        return None
    return RULE.finding(
        "warning",
        f"{THRESHOLD}:{settings[THRESHOLD]} is to collect cached blocks above {100 * threshold:g} % of what the "
        "process "
        "may have, and it may have the whole card: without a memory fraction PyTorch does not look at it",
        {"garbage_collection_threshold": threshold, "memory_fraction": fraction},
    )


RULE = Rule(
    id="MD607",
    title="A threshold of garbage collection that PyTorch does not look at",
    why=(
        "garbage_collection_threshold frees blocks that were unused for long, before the card is full. It acts only "
        "in a "
        "process with a memory fraction (torch.cuda.set_per_process_memory_fraction, or the setting of that name)."
    ),
    thresholds=(WHOLE_CARD,),
    remedies=(
        Remedy("leave it out: PyTorch gives its cache back by itself before it fails", "none"),
        Remedy("torch.cuda.set_per_process_memory_fraction(0.95), where your code does not call it yet", "time"),
    ),
    check=check,
)
