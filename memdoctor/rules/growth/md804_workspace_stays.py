"""MD804: what stays allocated after a run is cuBLAS's workspace."""

from __future__ import annotations

from memdoctor.records import Category, Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.growth.md803_kept_between_runs import RUNS
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

THREADS = Threshold(
    "threads with a workspace", 2, "threads",
    "CublasHandlePool.cpp: a workspace for each handle and stream; forward and backward run in threads of their own",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """After every run the same is left: one workspace or two."""
    runs = evidence.runs_allocated_bytes
    timeline = evidence.examination.timeline
    alive = timeline.alive_after(len(timeline.events) - 1)
    kept = [block.bytes for number in alive if (block := timeline.blocks[number]).category is Category.WORKSPACE]
    if not kept or len(set(runs)) != 1:
        return None
    size, left = max(kept), runs[0]
    if left == 0 or left % size or left // size > THREADS.value:
        return None
    times = f"{left // size} x " if left > size else ""
    return RULE.finding(
        "info",
        f"{format_bytes(left)} stay allocated after each of {len(runs)} runs: {times}{format_bytes(size)}, the "
        "workspace that cuBLAS keeps for a thread for the life of the process; it does not grow",
        {"left_bytes": left, "workspace_bytes": size},
    )


RULE = Rule(
    id="MD804",
    title="What stays allocated is cuBLAS's workspace",
    why=(
        "The first matrix product of a thread allocates a workspace through PyTorch's allocator, 8.125 MiB on most "
        "GPUs, and it is never freed. It is often taken for a leak, since memory_allocated() never returns to 0."
    ),
    needs=(RUNS,),
    thresholds=(THREADS,),
    remedies=(Remedy("nothing: it is no leak", "none"),),
    check=check,
)
