"""The predictions that evaluation gathers on the GPU, found by how ``nested_concat`` of transformers makes them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from memdoctor.records import Block, Category, PhaseName
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.instants import blocks_at_peak_of
from memdoctor.units import format_bytes

_CONCAT = "aten.cat.default"


@dataclass(frozen=True, slots=True)
class Gathered:
    """``final`` are the tensors of all samples, as the last batch left them, largest first.

    ``at_peak_bytes`` is what gathered tensors, old ones and the new ones that they are joined to, hold at evaluation's
    peak, ``rest_bytes`` all that is not gathered then.
    """

    final: tuple[Block, ...]
    at_peak_bytes: int
    rest_bytes: int

    @property
    def total_bytes(self) -> int:
        """All predictions once."""
        return sum(block.bytes for block in self.final)

    @property
    def per_sample_bytes(self) -> int:
        """What one sample adds."""
        return sum(block.bytes // block.shape[0] for block in self.final)

    @property
    def arithmetic(self) -> str:
        """The largest kind as a product: ``13 x 500 samples x 128x768 x 4 B = 2.32 GiB``."""
        largest = self.final[0]
        alike = [block for block in self.final if block.shape == largest.shape and block.dtype == largest.dtype]
        times = f"{len(alike)} x " if len(alike) > 1 else ""
        rest = "".join(f" x {part}" for part in ("x".join(map(str, largest.shape[1:])),) if part)
        width = largest.bytes // prod(largest.shape)
        total = sum(block.bytes for block in alike)
        return f"{times}{largest.shape[0]:,} samples{rest} x {width} B = {format_bytes(total)}"


def gathered_of(evidence: Evidence) -> Gathered | None:
    """What evaluation gathers; ``None`` where it keeps nothing, or has only one batch.

    A concatenation by no module, of more rows than a batch has, is that of the Trainer's loop: the model's own have the
    rows of the batch. The weak case is a model that joins along its rows outside all modules.
    """
    batch = evidence.workload.eval_batch_size
    timeline = evidence.examination.timeline
    born = {
        event.block
        for phase in timeline.phases
        if phase.name is PhaseName.EVALUATION
        for event in timeline.events[phase.begin : phase.end]
        if event.delta_bytes > 0
    }
    joined = [block for number in sorted(born) if _is_gathered(block := timeline.blocks[number], batch)]
    if not joined:
        return None
    held = [block for block in blocks_at_peak_of(evidence, PhaseName.EVALUATION) if _is_gathered(block, batch)]
    at_peak = sum(block.bytes for block in held)
    return Gathered(_final(joined), at_peak, evidence.phase_peak(PhaseName.EVALUATION) - at_peak)


def _is_gathered(block: Block, batch: int) -> bool:
    if block.category is not Category.TEMPORARIES or block.op != _CONCAT or block.module:
        return False
    return bool(block.shape) and block.shape[0] > batch


def _final(joined: list[Block]) -> tuple[Block, ...]:
    """Of each kind, those with the most rows; rows are counted by kind, since losses are repeated to full batches."""
    most: dict[tuple[str, tuple[int, ...]], int] = {}
    for block in joined:
        kind = (block.dtype, block.shape[1:])
        most[kind] = max(most.get(kind, 0), block.shape[0])
    last = [block for block in joined if block.shape[0] == most[block.dtype, block.shape[1:]]]
    return tuple(sorted(last, key=lambda block: -block.bytes))
