"""MD304: much of the state of an 8-bit optimizer stays in 32 bits."""

from __future__ import annotations

from math import prod

from memdoctor.records import Block, Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.lever_effects import probed_effects
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.static_state import most_alive
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the state", 0.1, "of the optimizer's state",
    "ours: what is quantised brings 1 to 2 % of constants (a float for each 256 values), and norms and biases less",
)  # fmt: skip

LEAST_OF_PEAK = Threshold(
    "share of the peak", 0.01, "of what is allocated at the peak", "ours: less is no reason for a saving that stays out"
)


def check(evidence: Evidence) -> Finding | None:
    """State of a parameter's shape is in float32 although the optimizer is named for fewer bits."""
    name = evidence.workload.optimizer
    if "8bit" not in name and "4bit" not in name:
        return None
    shapes = {block.shape for block in most_alive(evidence, Category.PARAMETERS)}
    state = most_alive(evidence, Category.OPTIMIZER_STATE)
    full = [block for block in state if block.dtype == "float32" and block.shape in shapes]
    held, total = sum(block.bytes for block in full), sum(block.bytes for block in state)
    least = max(LEAST_SHARE.value * total, LEAST_OF_PEAK.value * evidence.peak.allocated_bytes)
    if not full or held < least:
        return None
    return RULE.finding(
        "info" if evidence.fits else "warning",
        f"{format_bytes(held)} of {format_bytes(total)} of state are float32 ({_largest(full)}): at 1 B a value they "
        f"would be {format_bytes(held // 4)}{probed_effects(evidence, 'Adafactor')}",
        {"float32_bytes": held, "state_bytes": total},
        at_stake_bytes=held - held // 4,
    )


def _largest(blocks: list[Block]) -> str:
    shape = max(blocks, key=lambda block: block.bytes).shape
    alike = [block for block in blocks if block.shape == shape]
    times = "x".join(map(str, shape))
    return f"most of it {len(alike)} x {times} x {alike[0].bytes // prod(shape)} B"


RULE = Rule(
    id="MD304",
    title="Much of an 8-bit optimizer's state stays in 32 bits",
    why=(
        "bitsandbytes keeps the state of tensors below 4096 elements in 32 bits, and the Trainer asks it to do so for "
        "every embedding (Trainer.create_optimizer of transformers registers an override for each). With a large "
        "vocabulary that is most of the state, and the saving is far from the expected three quarters."
    ),
    thresholds=(LEAST_SHARE, LEAST_OF_PEAK),
    remedies=(
        Remedy("freeze the embeddings: they then have no state", "task", "freezing"),
        Remedy("adafactor, whose state of an embedding is one row and one column", "numerics", "Adafactor"),
    ),
    check=check,
)
