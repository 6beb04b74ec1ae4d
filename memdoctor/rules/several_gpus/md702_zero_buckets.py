"""MD702: ZeRO's reduce bucket is larger than all gradients of the model."""

from __future__ import annotations

from memdoctor.records import Category, Dtype, Finding, Precision
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import SEVERAL_GPUS
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.rules.several_gpus.strategies import NOT_PROBED
from memdoctor.rules.static_state import trained_of
from memdoctor.units import format_bytes

REDUCE_BUCKET = Threshold(
    "reduce_bucket_size", 500_000_000, "elements",
    "DeepSpeed's default (runtime/zero/config.py); stage_1_and_2.py and stage3.py allocate torch.empty of that many, "
    "whatever the model's size, with contiguous_gradients, which is on by default",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """The bucket of the default size has more elements than there are gradients."""
    workload, gradients = evidence.workload, trained_of(evidence)
    elements = int(REDUCE_BUCKET.value)
    if not workload.strategy.startswith("zero") or workload.world_size == 1 or not 0 < gradients < elements:
        return None
    half = workload.precision is not Precision.FP32 or workload.dtype is not Dtype.FLOAT32
    width = 2 if half else 4
    bucket, needed = elements * width, gradients * width
    second = "" if workload.strategy == "zero3" else ", and a second one with overlap_comm"
    return RULE.finding(
        "warning",
        f"a reduce bucket of the default size is {elements:,} x {width} B = {format_bytes(bucket)}{second}; all "
        f"gradients of the model are {gradients:,} x {width} B = {format_bytes(needed)}, and optimizer state holds "
        f"{format_bytes(evidence.most_held[Category.OPTIMIZER_STATE])} before it is sharded ({NOT_PROBED})",
        {"bucket_bytes": bucket, "gradient_bytes": needed, "world_size": workload.world_size},
        at_stake_bytes=bucket - needed,
    )


RULE = Rule(
    id="MD702",
    title="ZeRO's reduce bucket is larger than all gradients",
    why=(
        "DeepSpeed allocates its reduce bucket in full, at a size meant for billions of parameters. For a model of "
        "BERT's size the bucket can cost more than sharding saves. Where the file says auto, the Trainer fills in the "
        "square of the hidden size."
    ),
    needs=(SEVERAL_GPUS,),
    thresholds=(REDUCE_BUCKET,),
    remedies=(
        Remedy('"reduce_bucket_size": "auto", and "allgather_bucket_size": 5e7, not probed', "time"),
        Remedy('"overlap_comm": false, not probed', "time"),
    ),
    check=check,
)
