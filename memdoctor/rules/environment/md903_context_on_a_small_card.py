"""MD903: the CUDA context takes a large part of the card."""

from __future__ import annotations

from memdoctor.records import Finding
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the card", 0.1, "of the card", "ours: of the catalogue's cards from 8 GB on it is a few percent"
)


def check(evidence: Evidence) -> Finding | None:
    """Before the first tensor a share of the card is gone."""
    device = evidence.device
    context, total = device.context_bytes, device.total_bytes
    if device.is_cpu or context < LEAST_SHARE.value * total:
        return None
    return RULE.finding(
        "info" if evidence.fits else "warning",
        f"{format_bytes(context)} of {format_bytes(total)} are the CUDA context's (known to "
        f"{format_bytes(device.context_error_bytes)} either way); PyTorch can have "
        f"{format_bytes(evidence.limit_bytes)}",
        {"context_bytes": context, "total_bytes": total, "limit_bytes": evidence.limit_bytes},
        at_stake_bytes=context,
    )


RULE = Rule(
    id="MD903",
    title="The CUDA context takes a large part of the card",
    why=(
        "Every process that uses a GPU has a context with the kernels of PyTorch and its libraries, hundreds of "
        "megabytes whatever is computed. On a small card that is a share of it, and each further process has its own."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy(
            "CUDA_MODULE_LOADING=LAZY, the default from CUDA 12.2 on: kernels are loaded when they are used", "none"
        ),
        Remedy("one process on the card", "none"),
    ),
    check=check,
)
