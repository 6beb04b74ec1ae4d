"""MD210: what the forward pass gave is still alive when the step is over."""

from __future__ import annotations

from memdoctor.records import Block, Category, Finding, PhaseName
from memdoctor.rules.evidence import Evidence
from memdoctor.rules.reading import counted, percent, shaped
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_SHARE = Threshold(
    "share of the peak", 0.05, "of what is allocated at the peak",
    "ours: below a twentieth it is the loss and a few logits, which every loop keeps",
)  # fmt: skip
_OWN = (Category.ACTIVATIONS, Category.TEMPORARIES, Category.AUTOCAST_COPIES)


def kept(evidence: Evidence) -> tuple[Block, ...]:
    """Blocks born in a forward pass of step 1 that are alive after its last phase, whoever holds them."""
    timeline = evidence.examination.timeline
    phases = [phase for phase in timeline.phases if phase.step == 1 and phase.name is not PhaseName.EVALUATION]
    if not phases:
        return ()
    end = phases[-1].end
    forward = [range(phase.begin, phase.end) for phase in phases if phase.name is PhaseName.FORWARD]
    born = {timeline.events[number].block for span in forward for number in span}
    alive = (timeline.blocks[number] for number in timeline.alive_after(end - 1) if number in born)
    return tuple(block for block in alive if block.category in _OWN)


def check(evidence: Evidence) -> Finding | None:
    """They hold a share of the peak, all through the next forward pass."""
    blocks = kept(evidence)
    held = sum(block.bytes for block in blocks)
    if not blocks or held < LEAST_SHARE.value * evidence.peak.allocated_bytes:
        return None
    largest = max(blocks, key=lambda block: block.bytes)
    return RULE.finding(
        "warning",
        f"{format_bytes(held)} of what the forward pass gave outlive their step ({counted(len(blocks), 'tensor')}, the "
        f"largest {shaped(largest.shape)} {largest.dtype} of {largest.module or 'the model'} = "
        f"{format_bytes(largest.bytes)}), and lie beside the next step's until those take their place: "
        f"{percent(held, evidence.peak.allocated_bytes)} of the peak",
        {"held_bytes": held, "tensors": len(blocks)},
        at_stake_bytes=held,
    )


RULE = Rule(
    id="MD210",
    title="Outputs of the model outlive their step",
    why=(
        "A variable of the training loop (outputs, logits, loss with its graph) keeps its tensors until it is "
        "assigned anew, which is after the next forward pass: two batches' outputs are alive at once. The Trainer's "
        "variables end with each step."
    ),
    thresholds=(LEAST_SHARE,),
    remedies=(
        Remedy("del outputs before backward, with the loss kept", "none"),
        Remedy("loss.item() or loss.detach() for the log", "none"),
    ),
    check=check,
)
