"""MD406: once layers are checkpointed, mixed precision adds memory."""

from __future__ import annotations

from memdoctor.analysis import breakdown_of, peak_of
from memdoctor.records import Change, Dtype, Examination, Finding, Precision
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import where
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
    """With checkpointing, more is reserved in 16 bits than in fp32: where both are in use, or memory is short."""
    both = pair(evidence)
    if both is None or not _asked(evidence):
        return None
    full, mixed = (peak_of(examination).reserved_bytes for examination in both)
    if mixed - full < LEAST_COST.value * full:
        return None
    in_use = _in_use(evidence)
    before, after = (breakdown_of(examination) for examination in both)
    return RULE.finding(
        "warning" if in_use else "info",
        f"with checkpointing the reserved peak is {format_bytes(full)} in fp32 and {format_bytes(mixed)} in "
        f"{both[1].workload.precision.value}, {format_bytes(mixed - full)} more: activations at the peak go from "
        f"{format_bytes(before.activations)} to {format_bytes(after.activations)}, and copies of weights in 16 bits "
        f"add {format_bytes(after.autocast_copies)}",
        {"in_use": in_use, "fp32_reserved_bytes": full, "mixed_reserved_bytes": mixed},
        at_stake_bytes=mixed - full if in_use else 0,
    )


def _in_use(evidence: Evidence) -> bool:
    workload = evidence.workload
    return workload.gradient_checkpointing and workload.precision is not Precision.FP32


def _asked(evidence: Evidence) -> bool:
    full = evidence.workload.dtype is Dtype.FLOAT32
    return _in_use(evidence) or (full and presses(evidence))


RULE = Rule(
    id="MD406",
    title="Mixed precision adds memory once layers are checkpointed",
    why=(
        "Two levers do not add up. Checkpointing leaves one layer's activations and the inputs of the others, which "
        "stay in fp32; what autocast can still halve may be less than its copies of the weights."
    ),
    needs=(
        where(
            _asked,
            Need(
                "the checkpointed target in fp32 and in mixed precision",
                lambda evidence: "the two together were not probed" if pair(evidence) is None else None,
            ),
        ),
    ),
    thresholds=(LEAST_COST, NEARLY_FULL),
    remedies=(
        Remedy("checkpointing alone, where only memory counts", "numerics"),
        Remedy("both, for the speed of 16 bits", "none"),
    ),
    check=check,
)
