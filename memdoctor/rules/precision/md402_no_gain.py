"""MD402: mixed precision saves next to nothing: what its casts add is what halved activations save."""

from __future__ import annotations

from memdoctor.analysis import peak_of
from memdoctor.records import Category, Dtype, Examination, Finding, Precision
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import where
from memdoctor.rules.reading import NEARLY_FULL, left, most_alive, presses
from memdoctor.rules.rule import Need, Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_EFFECT = Threshold(
    "saving", 0.05, "of the reserved peak in fp32",
    "ours: a twentieth is lost in what nvidia-smi shows from run to run",
)  # fmt: skip
_GUIDE = "NVIDIA, CUDA C++ Programming Guide, arithmetic instructions by compute capability"
FP16_TENSOR_CORES = Threshold("compute capability", 7.0, "from which fp16 saves time", _GUIDE)
BF16_TENSOR_CORES = Threshold("compute capability", 8.0, "from which bf16 saves time", _GUIDE)
HALF = (Precision.FP16, Precision.BF16)


def pair(evidence: Evidence) -> tuple[Examination, Examination] | None:
    """The target in fp32 and in mixed precision: one is the target itself, the other its probe."""
    here = evidence.examination
    if evidence.workload.precision is not Precision.FP32:
        full = evidence.changed({"precision": Precision.FP32.value})
        return None if full is None else (full, here)
    mixed = next((found for kind in HALF if (found := evidence.changed({"precision": kind.value}))), None)
    return None if mixed is None else (here, mixed)


def check(evidence: Evidence) -> Finding | None:
    """The two peaks are close, or mixed precision's is the higher; says both terms."""
    both = pair(evidence)
    in_use = evidence.workload.precision is not Precision.FP32
    if both is None or not _asked(evidence):
        return None
    full, mixed = (peak_of(examination) for examination in both)
    saved = full.reserved_bytes - mixed.reserved_bytes
    if saved >= LEAST_EFFECT.value * full.reserved_bytes:
        return None
    before, after = (_most(examination, Category.ACTIVATIONS) for examination in both)
    copies = _most(both[1], Category.AUTOCAST_COPIES)
    kind = both[1].workload.precision.value
    verb = (
        f"saves {format_bytes(saved)}" if saved > 0 else f"costs {format_bytes(-saved)}" if saved else "saves nothing"
    )
    return RULE.finding(
        "warning" if in_use and presses(evidence) else "info",  # with room to spare it does no harm
        f"{kind} {verb} of the reserved peak ({format_bytes(full.reserved_bytes)} in fp32, in {full.phase}; "
        f"{format_bytes(mixed.reserved_bytes)} in {kind}, in {mixed.phase}): activations go from "
        f"{format_bytes(before)} to {format_bytes(after)}, copies of weights in 16 bits add {format_bytes(copies)}, "
        f"and {format_bytes(evidence.static_bytes)} of parameters, gradients and optimizer state stay as they are",
        {"saves_bytes": saved, "activations_fp32_bytes": before, "activations_bytes": after, "copies_bytes": copies},
        at_stake_bytes=max(-saved, 0) if in_use else 0,
        remedies=(*RULE.remedies[: int(_saves_time(evidence, both[1]))], *left(evidence, RULE.remedies[1:])),
    )


def _asked(evidence: Evidence) -> bool:
    workload = evidence.workload
    return workload.precision is not Precision.FP32 or (workload.dtype is Dtype.FLOAT32 and presses(evidence))


def _saves_time(evidence: Evidence, mixed: Examination) -> bool:
    major, minor = evidence.device.capability
    first = BF16_TENSOR_CORES if mixed.workload.precision is Precision.BF16 else FP16_TENSOR_CORES
    return major + minor / 10 >= first.value


def _most(examination: Examination, category: Category) -> int:
    return sum(block.bytes for block in most_alive(examination.timeline, lambda block: block.category is category))


RULE = Rule(
    id="MD402",
    title="Mixed precision saves next to nothing",
    why=(
        "Autocast does not halve the model: weights, gradients and optimizer state stay in fp32, and a copy of the "
        "weights in 16 bits is added. With few tokens in the batch there are few activations to halve, and the head of "
        "a language model has its logits in both types."
    ),
    needs=(
        where(
            _asked,
            Need(
                "the target both in fp32 and in mixed precision",
                lambda evidence: "the target was not probed in another precision" if pair(evidence) is None else None,
            ),
        ),
    ),
    thresholds=(LEAST_EFFECT, NEARLY_FULL, FP16_TENSOR_CORES, BF16_TENSOR_CORES),
    remedies=(
        Remedy("kept for its speed, where the card has tensor cores", "none"),
        Remedy("an optimizer with less state: 8-bit AdamW, Adafactor", "numerics", "8-bit optimizer"),
        Remedy("weights stored in 16 bits: dtype bfloat16", "numerics", since=BF16_TENSOR_CORES.value),
    ),
    check=check,
)
