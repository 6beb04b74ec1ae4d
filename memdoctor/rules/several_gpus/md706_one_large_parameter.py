"""MD706: one parameter is a large part of the model, and full sharding gathers it whole."""

from __future__ import annotations

from math import prod

from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import SEVERAL_GPUS
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.several_gpus.strategies import NOT_PROBED
from memdoctor.rules.static_state import most_alive
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the parameters", 0.25, "of the parameters",
    "ours: the embedding of BERT-base is 21 % of it, that of XLM-RoBERTa-base 69 %",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """With ZeRO-3 or FSDP, the largest parameter is a share of all, and larger than a GPU's shard of the model."""
    workload = evidence.workload
    blocks = most_alive(evidence, Category.PARAMETERS)
    if workload.strategy not in ("zero3", "fsdp") or workload.world_size == 1 or not blocks:
        return None
    largest, total = max(blocks, key=lambda block: block.bytes), sum(block.bytes for block in blocks)
    shard = -(-total // workload.world_size)
    if largest.bytes < LEAST_SHARE.value * total or largest.bytes <= shard:
        return None
    shape = "x".join(map(str, largest.shape))
    return RULE.finding(
        "info" if evidence.fits else "warning",
        f"the largest parameter is {shape} x {largest.bytes // prod(largest.shape)} B = {format_bytes(largest.bytes)}, "
        f"{100 * largest.bytes // total} % of all; each of the {workload.world_size} GPUs gathers it whole in forward "
        f"and backward beside its shard of {format_bytes(shard)} ({NOT_PROBED})",
        {"largest_bytes": largest.bytes, "parameters_bytes": total, "shard_bytes": shard},
        at_stake_bytes=largest.bytes,
    )


RULE = Rule(
    id="MD706",
    title="Full sharding gathers one large parameter whole",
    why=(
        "ZeRO-3 and FSDP divide parameters among GPUs and gather each module's when it runs: the peak has the largest "
        "one whole, with its gradient in backward (DeepSpeed's own estimate counts 4 bytes for each of its "
        "elements). A "
        "large vocabulary is one parameter."
    ),
    needs=(SEVERAL_GPUS,),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("ZeRO-2, where parameters fit: it gathers nothing in forward, not probed", "none", "sharding"),
        Remedy("freeze the embedding: it has no gradient then", "task", "freezing"),
    ),
    check=check,
)
