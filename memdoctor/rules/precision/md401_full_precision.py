"""MD401: everything is in fp32, on a card that computes in 16 bits."""

from __future__ import annotations

from memdoctor.records import Dtype, Finding, Lever, Precision
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.needs import probed_any, where
from memdoctor.rules.reading import NEARLY_FULL, effect, gain, presses
from memdoctor.rules.rule import Remedy, Rule, Threshold

TENSOR_CORES = Threshold(
    "compute capability", 7.0, "from which 16 bits also save time",
    "NVIDIA, CUDA C++ Programming Guide, arithmetic instructions by compute capability",
)  # fmt: skip
LEAST_EFFECT = Threshold(
    "saving", 0.05, "of the reserved peak", "ours: less is no reason to change the numerics",
)  # fmt: skip


def best(evidence: Evidence) -> Lever | None:
    """The better of fp16 and bf16, by what it was probed to save."""
    tried = [lever for name in ("bf16", "fp16") if (lever := evidence.lever(name)) and gain(lever) is not None]
    return max(tried, key=lambda lever: gain(lever) or 0, default=None)


def check(evidence: Evidence) -> Finding | None:
    """Memory is short, the card has tensor cores, and mixed precision was probed to save."""
    lever = best(evidence)
    if lever is None or not _asked(evidence):
        return None
    saved = gain(lever) or 0
    if saved < LEAST_EFFECT.value * evidence.peak.reserved_bytes:
        return None
    fits = ", and then it fits" if lever.fits and not evidence.fits else ""
    return RULE.finding(
        "warning",
        f"forward and backward are in fp32, and {evidence.device.name} (compute capability "
        f"{evidence.device.compute_capability}) computes in 16 bits; {effect(evidence, lever)}{fits}",
        {"lever": lever.name, "saves_bytes": saved, "fits_with_it": bool(lever.fits)},
        at_stake_bytes=saved,
        remedies=tuple(remedy for remedy in RULE.remedies if remedy.lever == lever.name),
    )


def _asked(evidence: Evidence) -> bool:
    workload, (major, minor) = evidence.workload, evidence.device.capability
    full = workload.precision is Precision.FP32 and workload.dtype is Dtype.FLOAT32
    return full and presses(evidence) and major + minor / 10 >= TENSOR_CORES.value


RULE = Rule(
    id="MD401",
    title="All is in fp32, on a card that computes in 16 bits",
    why=(
        "Autocast runs matrix products in 16 bits, and keeps what they need for backward in 16 bits: most activations "
        "take half. Weights, gradients and optimizer state stay in fp32."
    ),
    needs=(where(_asked, probed_any("fp16", "bf16")),),
    thresholds=(TENSOR_CORES, LEAST_EFFECT, NEARLY_FULL),
    remedies=(Remedy("--bf16", "numerics", "bf16"), Remedy("--fp16", "numerics", "fp16")),
    check=check,
)
