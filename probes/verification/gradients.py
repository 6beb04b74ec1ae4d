"""Gradients compared with gradients: how far apart, and whether one is a multiple of the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

import torch

from memdoctor.probes.verification.numbers import Gradients


@dataclass(frozen=True, slots=True)
class Likeness:
    """``seen`` beside ``reference``, both as one long vector.

    ``difference`` is the norm of seen less reference, by the norm of the reference. ``ratio`` is the multiple of the
    reference that is nearest to seen, and ``off_direction`` what is left between them, by the norm of seen.
    """

    seen_norm: float
    reference_norm: float
    difference: float
    ratio: float
    off_direction: float


def likeness(seen: Gradients, reference: Gradients) -> Likeness:
    """Compare tensor by tensor, and add up in fp64. A parameter without a gradient counts as one of zeros."""
    names = seen.keys() | reference.keys()
    seen_square = _sum(_dot(seen[name], seen[name]) for name in seen)
    reference_square = _sum(_dot(reference[name], reference[name]) for name in reference)
    product = _sum(_dot(seen[name], reference[name]) for name in seen.keys() & reference.keys())
    apart = _sum(_apart(seen.get(name), reference.get(name), 1.0) for name in names)
    ratio = product / reference_square if reference_square else 0.0
    left = _sum(_apart(seen.get(name), reference.get(name), ratio) for name in names)
    return Likeness(
        sqrt(seen_square), sqrt(reference_square), _part(apart, reference_square), ratio, _part(left, seen_square)
    )


def not_finite(gradients: Gradients) -> tuple[str, ...]:
    """Parameters whose gradient holds a nan or an infinity, in the model's order."""
    return tuple(name for name, gradient in gradients.items() if not gradient.isfinite().all())


def weighted(parts: Iterable[tuple[float, Gradients]]) -> dict[str, torch.Tensor]:
    """The sum of gradients, each times its weight."""
    total: dict[str, torch.Tensor] = {}
    for weight, gradients in parts:
        for name, gradient in gradients.items():
            scaled = gradient * weight
            total[name] = total[name] + scaled if name in total else scaled
    return total


def _dot(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.dot(a.flatten(), b.flatten()))


def _apart(seen: torch.Tensor | None, reference: torch.Tensor | None, times: float) -> float:
    if seen is None or reference is None:
        alone = seen if reference is None else reference
        assert alone is not None
        return _dot(alone, alone) * (1.0 if reference is None else times**2)
    gap = torch.sub(seen, reference, alpha=times).flatten()
    return _dot(gap, gap)


def _sum(values: Iterable[float]) -> float:
    return float(sum(values))


def _part(square: float, whole: float) -> float:
    if whole:
        return sqrt(square / whole)
    return 0.0 if not square else float("inf")
