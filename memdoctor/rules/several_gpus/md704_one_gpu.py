"""MD704: a strategy for several GPUs runs on one."""

from __future__ import annotations

from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import SEVERAL_GPUS
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.several_gpus.strategies import NOT_PROBED, SHARDED, words
from memdoctor.units import format_bytes

GPUS = Threshold("GPUs", 2, "GPUs", "what is divided by one stays whole")


def check(evidence: Evidence) -> Finding | None:
    """There is one GPU, and nothing to share with."""
    workload = evidence.workload
    if workload.world_size >= GPUS.value:
        return None
    held = sum(evidence.most_held[category] for category in SHARDED.get(workload.strategy, ()))
    divided = (
        f"{words(workload.strategy)}, {format_bytes(held)}, are divided by 1, and stay whole"
        if held
        else f"gradients, {format_bytes(evidence.most_held[Category.GRADIENTS])}, are reduced over one GPU"
    )
    return RULE.finding(
        "warning",
        f"{workload.strategy} runs with a world size of 1: {divided}; its buckets and buffers come on top "
        f"({NOT_PROBED})",
        {"world_size": workload.world_size, "strategy": workload.strategy, "sharded_bytes": held},
    )


RULE = Rule(
    id="MD704",
    title="A strategy for several GPUs runs on one",
    why=(
        "Sharding divides by the number of GPUs, DDP copies to all of them. On one GPU neither saves anything, and "
        "their buckets cost. (Offloading to the host is another matter: it helps on one GPU too.)"
    ),
    needs=(SEVERAL_GPUS,),
    thresholds=(GPUS,),
    remedies=(
        Remedy("train without it", "none"),
        Remedy("start one process for each GPU (torchrun --nproc-per-node), not probed", "none", "sharding"),
    ),
    check=check,
)
