"""MD308: paged optimizer state lies outside PyTorch's allocator, and may move to the host."""

from __future__ import annotations

from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import left
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.static_state import elements, most_alive
from memdoctor.units import format_bytes

PAGED_FROM = Threshold(
    "paged from", 100_000, "elements of a parameter",
    "bitsandbytes/optim/optimizer.py, Optimizer8bit.get_state_buffer: below 1e5 elements state is an ordinary tensor",
)  # fmt: skip
_STATES = {"lion": 1, "ademamix": 3}  # values kept for a parameter: one momentum; two and a second moment
_ADAM = 2


def check(evidence: Evidence) -> Finding | None:
    """The optimizer is named ``paged_*``: what it keeps for large parameters is in managed memory."""
    name = evidence.workload.optimizer
    if not name.startswith("paged_"):
        return None
    gradients = most_alive(evidence, Category.GRADIENTS)
    large = elements(block for block in gradients if elements([block]) >= PAGED_FROM.value)
    states = next((count for word, count in _STATES.items() if word in name), _ADAM)
    width = 1 if name.endswith("8bit") else 4
    paged, reserved, limit = large * states * width, evidence.peak.reserved_bytes, evidence.limit_bytes
    if paged == 0:
        return None
    missing = reserved + paged - limit
    room = (
        f"{format_bytes(missing)} more than the card has: pages move to the host and back in every step"
        if missing > 0
        else f"{format_bytes(-missing)} less than the card has, so that its pages can stay on it"
    )
    return RULE.finding(
        "warning" if missing > 0 else "info",
        f"at least {states} x {large:,} x {width} B = {format_bytes(paged)} of state are in managed memory, which no "
        f"figure of PyTorch's counts; with {format_bytes(reserved)} reserved by PyTorch that is {room}",
        {"paged_bytes": paged, "reserved_bytes": reserved, "limit_bytes": limit},
        at_stake_bytes=paged,
        remedies=left(evidence, RULE.remedies),
    )


RULE = Rule(
    id="MD308",
    title="Paged optimizer state is outside PyTorch's allocator",
    why=(
        "Paged optimizers keep their state in memory of cudaMallocManaged. The driver keeps its pages on the GPU while "
        "there is room and moves them to the host when there is none: no error, but transfers in every step, and "
        "PyTorch's counters show none of it. Embeddings, which the Trainer keeps in 32 bits, take more than is said."
    ),
    thresholds=(PAGED_FROM,),
    remedies=(
        Remedy("the same optimizer without paging, where it fits: its peak is then all in PyTorch's figures", "none"),
        Remedy("leave room on the card for the state, by a smaller batch", "time", "batch"),
    ),
    check=check,
)
