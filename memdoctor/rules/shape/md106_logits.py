"""MD106: the logits over the vocabulary hold as much as the model."""

from __future__ import annotations

from collections import Counter
from math import prod

from memdoctor.records import Block, Category, Finding
from memdoctor.rules.evidence import STATIC, Evidence
from memdoctor.rules.needs import MODEL_CONFIG
from memdoctor.rules.reading import counted, left, most_alive, percent, shaped
from memdoctor.rules.rule import Remedy, Rule, Threshold
from memdoctor.units import format_bytes

LEAST_OF_THE_MODEL = Threshold(
    "bytes of logits", 1.0, "times those of the parameters",
    "ours: from there on the head, not the encoder, decides what fits",
)  # fmt: skip
SUBSTANTIAL = Threshold(
    "share of the peak", 0.2, "of what is allocated at the peak",
    "ours: a fifth is more than any other single tensor of BERT-base holds",
)  # fmt: skip


def logits(evidence: Evidence) -> tuple[Block, ...]:
    """The tensors of rows x length x vocabulary, when most of them are alive: logits, their copies and gradients."""
    vocabulary = evidence.config.get("vocab_size")
    rows = evidence.workload.batch_size

    def wanted(block: Block) -> bool:
        shape = block.shape
        return shape[-1:] == (vocabulary,) and prod(shape[:-1]) >= rows and block.category not in STATIC

    return most_alive(evidence.examination.timeline, wanted)


def check(evidence: Evidence) -> Finding | None:
    """Tensors over the vocabulary hold at one time at least what the parameters do."""
    copies = logits(evidence)
    held, parameters = sum(block.bytes for block in copies), evidence.most_held[Category.PARAMETERS]
    if not copies or held < LEAST_OF_THE_MODEL.value * parameters:
        return None
    at_peak = sum(group.bytes for group in evidence.tensors if group.shape[-1:] == copies[0].shape[-1:]
                  and group.category not in STATIC)  # fmt: skip
    substantial = at_peak >= SUBSTANTIAL.value * evidence.peak.allocated_bytes
    return RULE.finding(
        "warning" if substantial else "info",
        f"{counted(len(copies), 'tensor')} over the vocabulary alive at once ({_listed(copies)}) hold "
        f"{format_bytes(held)}, the model's parameters {format_bytes(parameters)}; at the peak it is "
        f"{format_bytes(at_peak)}, {percent(at_peak, evidence.peak.allocated_bytes)} of it",
        {"copies": len(copies), "held_bytes": held, "parameters_bytes": parameters, "at_peak_bytes": at_peak},
        at_stake_bytes=at_peak,
        remedies=left(evidence, RULE.remedies),
    )


def _listed(blocks: tuple[Block, ...]) -> str:
    kinds = Counter((block.shape, block.dtype, block.bytes) for block in blocks)
    return "; ".join(
        f"{count} x {shaped(shape)} {dtype} = {format_bytes(count * size)}"
        for (shape, dtype, size), count in kinds.most_common(3)
    )


RULE = Rule(
    id="MD106",
    title="The logits over the vocabulary are as large as the model",
    why=(
        "A language-model head gives one number for every token and every entry of the vocabulary, in several copies: "
        "logits, log-softmax and gradient, under autocast also in fp32. Checkpointing of the layers frees none of it."
    ),
    needs=(MODEL_CONFIG,),
    thresholds=(LEAST_OF_THE_MODEL, SUBSTANTIAL),
    remedies=(
        Remedy("a smaller per-device batch with more gradient accumulation", "time", "batch", accumulates=True),
        Remedy("the head applied to the masked positions alone: ModernBERT's sparse_prediction, or a head of "
               "your own", "none"),
        Remedy("a shorter sequence", "task", "length"),
    ),
    check=check,
)  # fmt: skip
