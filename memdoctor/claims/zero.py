"""ZeRO-2 cuts optimizer memory: several GPUs cannot be probed yet, so this is arithmetic, and says so."""

from __future__ import annotations

from memdoctor.claims.belief import Belief, Verdict
from memdoctor.records import Category, Dtype, Precision
from memdoctor.rules import Evidence
from memdoctor.rules.several_gpus.md702_zero_buckets import REDUCE_BUCKET
from memdoctor.rules.static_state import trained_of
from memdoctor.units import format_bytes

FEWEST_GPUS = 2


def _weigh(evidence: Evidence) -> Verdict:
    workload, trained, elements = evidence.workload, trained_of(evidence), int(REDUCE_BUCKET.value)
    half = workload.precision is not Precision.FP32 or workload.dtype is not Dtype.FLOAT32
    width, gpus = (2 if half else 4), max(workload.world_size, FEWEST_GPUS)
    bucket, gradients = elements * width, trained * width
    state = evidence.most_held[Category.OPTIMIZER_STATE]
    saved = state - -(-state // gpus)
    larger = "larger" if bucket > gradients else "smaller"
    showed = (
        f"several GPUs cannot be probed yet. By arithmetic: {gpus} GPUs would share {format_bytes(state)} of optimizer "
        f"state and save {format_bytes(saved)} of it; a bucket of the default size is {elements:,} x {width} B = "
        f"{format_bytes(bucket)}, {larger} than all gradients of the model, {trained:,} x {width} B = "
        f"{format_bytes(gradients)}"
    )
    figures = {"bucket_bytes": bucket, "gradient_bytes": gradients, "state_bytes": state, "saves_at_most_bytes": saved}
    return None, showed, figures


BELIEF = Belief("zero-2", "ZeRO-2 cuts optimizer memory", lambda workload, longest: (), _weigh)
