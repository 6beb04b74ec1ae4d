"""MD902: this process holds much outside PyTorch's allocator."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.environment.needs import PROCESS_BYTES
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import GIB, format_bytes

LEAST = Threshold(
    "outside PyTorch", 5 * GIB // 2, "bytes",
    "28 messages of public reports: what is outside PyTorch is 0.31 to 1.99 GiB in 24 of them and 4.27 GiB or more in "
    "four; nothing lies between",
)  # fmt: skip


def check(evidence: Evidence) -> Finding | None:
    """What the driver counts for this process, less what PyTorch has reserved, is more than context and libraries."""
    counters, device = evidence.examination.counters, evidence.device
    if counters is None or counters.process_bytes is None:
        return None
    outside = counters.process_bytes - counters.memory_reserved_bytes
    if outside < LEAST.value:
        return None
    return RULE.finding(
        "warning",
        f"this process holds {format_bytes(counters.process_bytes)} of the card, and PyTorch's allocator "
        f"{format_bytes(counters.memory_reserved_bytes)} of that: {format_bytes(outside)} are outside it, where a "
        f"context takes {format_bytes(device.context_bytes)}",
        {
            "outside_bytes": outside, "process_bytes": counters.process_bytes,
            "reserved_bytes": counters.memory_reserved_bytes, "context_bytes": device.context_bytes,
        },
        at_stake_bytes=outside,
    )  # fmt: skip


RULE = Rule(
    id="MD902",
    title="This process holds much outside PyTorch's allocator",
    why=(
        "TensorFlow, JAX, CuPy and RAPIDS have pools of their own, and some take most of the card when they are first "
        "imported. PyTorch cannot use what they hold, and its message does not name them."
    ),
    needs=(PROCESS_BYTES,),
    thresholds=(LEAST,),
    remedies=(
        Remedy("let the other framework grow (TF_FORCE_GPU_ALLOW_GROWTH, XLA_PYTHON_CLIENT_PREALLOCATE=false)", "none"),
        Remedy("let it allocate through PyTorch (spaCy: set_gpu_allocator('pytorch'))", "none"),
        Remedy("keep it off the GPU in this process", "time"),
    ),
    check=check,
)
