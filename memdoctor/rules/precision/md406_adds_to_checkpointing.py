"""MD406: once layers are checkpointed, mixed precision adds memory."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.records import Change, Examination, Finding, Precision
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import NEARLY_FULL, presses
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_COST = Threshold(
    "share of the reserved peak", 0.01, "that mixed precision adds",
    "ours: below a hundredth it is the allocator's segments of 2 and 20 MiB (c10/core/AllocatorConfig.h, "
    "kSmallBuffer, kLargeBuffer)",
)  # fmt: skip


def pair(evidence: Evidence) -> tuple[Examination, Examination] | None:
    """The checkpointed target in fp32 and in fp16: probes, or the target itself."""
    workload = evidence.workload
    on: Change = {"gradient_checkpointing": True}
    half: Change = {"precision": Precision.FP16.value}
    full: Change = {"precision": Precision.FP32.value}
    here = evidence.examination
    match workload.precision, workload.gradient_checkpointing:
        case Precision.FP32, False:
            found = evidence.changed(on), evidence.changed({**half, **on})
        case Precision.FP32, True:
            found = here, evidence.changed(half)
        case _, True:
            found = evidence.changed(full), here
        case _:
            found = evidence.changed({**full, **on}), evidence.changed(on)
    first, second = found
    return None if first is None or second is None else (first, second)


def check(evidence: Evidence) -> Finding | None:
    """With checkpointing, more is reserved in 16 bits than in fp32, and one of the two is in use or memory is short."""
    both, workload = pair(evidence), evidence.workload
    half = workload.precision is not Precision.FP32
    if both is None or not (half or workload.gradient_checkpointing or presses(evidence)):
        return None
    full, mixed = (peak_of(examination).reserved_bytes for examination in both)
    if mixed - full < LEAST_COST.value * full:
        return None
    in_use = workload.gradient_checkpointing and half
    return RULE.finding(
        "warning" if in_use else "info",
        f"with checkpointing the reserved peak is {format_bytes(full)} in fp32 and {format_bytes(mixed)} in "
        f"{both[1].workload.precision.value}, {format_bytes(mixed - full)} more: a checkpointed layer has few "
        "activations left to halve, and the copies of the weights come on top",
        {"in_use": in_use, "fp32_reserved_bytes": full, "mixed_reserved_bytes": mixed},
        at_stake_bytes=mixed - full if in_use else 0,
    )


RULE = Rule(
    id="MD406",
    title="Mixed precision adds memory once layers are checkpointed",
    why=(
        "Two levers do not add up. Checkpointing leaves one layer's activations and the inputs of the others, which "
        "stay in fp32; what autocast can still halve may be less than its copies of the weights."
    ),
    needs=(
        Need(
            "the checkpointed target in fp32 and in mixed precision",
            lambda evidence: "the two together were not probed" if pair(evidence) is None else None,
        ),
    ),
    thresholds=(LEAST_COST, NEARLY_FULL),
    remedies=(
        Remedy("checkpointing alone, where only memory counts", "numerics"),
        Remedy("both, for the speed of 16 bits", "none"),
    ),
    check=check,
)
