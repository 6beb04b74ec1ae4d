"""MD605: settings of the allocator that do nothing here."""

from __future__ import annotations

from memdoctor.records import Completed, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold
from memdoctor.units import format_bytes

NO_SETTINGS = {"cuda_alloc_conf": ""}
LEVER = "expandable_segments"
LEAST_SAVED = Threshold(
    "least saved", 1, "byte of what is reserved", "ours: what saves nothing at all does nothing here"
)


def _without(evidence: Evidence) -> str | None:
    conf = evidence.device.alloc_conf
    return None if not conf or _saved(evidence) is not None else f"the target was not probed without {conf}"


def check(evidence: Evidence) -> Finding | None:
    """``PYTORCH_CUDA_ALLOC_CONF`` is set, and without it no more is reserved."""
    conf, found = evidence.device.alloc_conf, _saved(evidence)
    if not conf or found is None:
        return None
    saved, fits_without = found
    if saved >= LEAST_SAVED.value or (evidence.fits and not fits_without):
        return None
    reserved = evidence.peak.reserved_bytes
    return RULE.finding(
        "warning" if saved < 0 else "info",
        f"with PYTORCH_CUDA_ALLOC_CONF={conf} PyTorch reserves {format_bytes(reserved)}, without it "
        f"{format_bytes(reserved + saved)}",
        {"reserved_bytes": reserved, "without_bytes": reserved + saved, "alloc_conf": conf},
        at_stake_bytes=-saved,
    )


def _saved(evidence: Evidence) -> tuple[int, bool] | None:
    """What the settings save of what is reserved, and whether the target fits without them, where that was probed."""
    lever = evidence.lever(LEVER)
    if lever is None or lever.status != "in use" or lever.saves_bytes is None or lever.fits is None:
        return _saved_by_probe(evidence)
    return -lever.saves_bytes, lever.fits


def _saved_by_probe(evidence: Evidence) -> tuple[int, bool] | None:
    without = evidence.changed(NO_SETTINGS)
    if without is None:
        return None
    return max(without.timeline.reserved()) - evidence.peak.reserved_bytes, isinstance(without.outcome, Completed)


RULE = Rule(
    id="MD605",
    title="Settings of the allocator change nothing here",
    why=(
        "PyTorch's message advises max_split_size_mb or expandable_segments whenever memory runs out. They act on free "
        "pieces inside segments; where there are hardly any, they do nothing, and some settings make it worse."
    ),
    needs=(Need("a probe without the settings", _without),),
    thresholds=(LEAST_SAVED,),
    remedies=(Remedy("leave PYTORCH_CUDA_ALLOC_CONF unset", "none"),),
    check=check,
)
