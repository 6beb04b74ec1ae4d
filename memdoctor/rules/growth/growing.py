"""What is left over by each step, compared with the step before."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from memdoctor.records import Block, Category, PhaseName
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.rule import Need, Threshold
from memdoctor.units import format_bytes

LEAST_GROWTH = Threshold(
    "least growth", 4096, "bytes a step",
    "ours: eight losses kept a step (512 B each, the least that the allocator gives) are no matter; 4 KiB a step are "
    "0.4 GiB in 100,000 steps",
)  # fmt: skip
SOON = Threshold("soon", 1000, "steps", "ours: less than an epoch of 8,000 samples at batch 8")
# A state may be made late, and libraries' workspaces when they are first needed; neither is left over by a step.
_LATE = (Category.PARAMETERS, Category.OPTIMIZER_STATE, Category.WORKSPACE)

Kind = tuple[Category, str, str, str, tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Growing:
    """What the last whole step left more than the one before.

    ``per_step`` is the growth of each step over the one before it, ``more`` the kinds of blocks that there are more
    of, with how many, largest first; ``of_activations`` is what is for backward.
    """

    per_step: tuple[int, ...]
    more: tuple[tuple[Kind, int], ...]

    @property
    def bytes(self) -> int:
        """The growth of the last step."""
        return self.per_step[-1]

    @property
    def of_activations(self) -> int:
        """How much of what there is more of was packed for backward."""
        return sum(kind[-1] * count for kind, count in self.more if kind[0] is Category.ACTIVATIONS)

    @property
    def largest(self) -> str:
        """``2 x 8x512x768 float32 of aten.gelu.default in net.layer.0, 24.00 MiB``."""
        (_, module, op, dtype, shape, size), count = self.more[0]
        where = f" in {module}" if module else ""
        dimensions = "x".join(map(str, shape)) or "1"
        return f"{count} x {dimensions} {dtype} of {op}{where}, {format_bytes(count * size)}"

    def until_full(self, evidence: Evidence) -> int | None:
        """After how many steps the card is full; ``None`` where it is already."""
        return evidence.breakdown.free // self.bytes if evidence.fits else None


def growing_of(evidence: Evidence) -> Growing | None:
    """The growth from step to step; ``None`` where a step left no more, or hardly more, than the one before."""
    ends = _ends(evidence)
    left = [_left(evidence, end) for end in ends]
    if len(left) < 2:
        return None
    per_step = tuple(_growth(earlier, later) for earlier, later in pairwise(left))
    if min(per_step) < LEAST_GROWTH.value:
        return None
    more = Counter(left[-1])
    more.subtract(left[-2])
    ranked = sorted(((kind, count) for kind, count in more.items() if count > 0), key=lambda item: -_bytes(item))
    return Growing(per_step, tuple(ranked))


def _growth(earlier: Counter[Kind], later: Counter[Kind]) -> int:
    """By category, where there is more of it: the last step's batch, say, is gone at its end as no other's is."""
    change: Counter[Category] = Counter()
    for kinds, sign in ((earlier, -1), (later, 1)):
        for kind, count in kinds.items():
            change[kind[0]] += sign * kind[-1] * count
    return sum(size for size in change.values() if size > 0)


def _bytes(item: tuple[Kind, int]) -> int:
    return item[0][-1] * item[1]


def _ends(evidence: Evidence) -> list[int]:
    """The last event of every whole step."""
    last: dict[int, int] = {}
    for phase in evidence.examination.timeline.phases:
        if phase.name is PhaseName.ZERO_GRAD:
            last[phase.step] = phase.end - 1
    return [last[step] for step in sorted(last) if last[step] >= 0]


def _left(evidence: Evidence, end: int) -> Counter[Kind]:
    timeline = evidence.examination.timeline
    blocks = (timeline.blocks[number] for number in timeline.alive_after(end))
    return Counter(_kind(block) for block in blocks if block.category not in _LATE)


def _kind(block: Block) -> Kind:
    return block.category, block.module, block.op, block.dtype, block.shape, block.bytes


def _two_steps(evidence: Evidence) -> str | None:
    return None if len(_ends(evidence)) > 1 else "fewer than two whole steps were run"


TWO_STEPS = Need("two whole steps", _two_steps)
"""A step to compare with the one before."""
