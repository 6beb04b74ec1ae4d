"""Which training steps are recorded, and why each: most informative first, so that a run cut short tells most.

A worker builds every model anew, so cells of one model together would save no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from memdoctor.errors import UsageError
from memdoctor.matrix import BF16_CAPABILITY
from memdoctor.probes.resolve import ModelFacts, from_catalogue, resolve_model
from memdoctor.records import Attention, Device, Precision, Workload
from memdoctor.units import MIB, format_bytes

MODELS = {
    "bert-base": "bert-base-uncased",
    "bert-large": "bert-large-uncased",
    "roberta-base": "roberta-base",
    "distilbert": "distilbert-base-uncased",
    "deberta-v3-base": "microsoft/deberta-v3-base",
}
_SETTINGS: dict[str, Mapping[str, Any]] = {
    "fp32": {"precision": Precision.FP32},
    "fp16": {"precision": Precision.FP16},
    "bf16": {"precision": Precision.BF16},
    "eager": {"attention": Attention.EAGER},
    "sdpa": {"attention": Attention.SDPA},
    "ckpt": {"gradient_checkpointing": True},
    "foreach": {"optimizer": "adamw_torch"},  # AdamW over lists of tensors, as before transformers 5
    "adafactor": {"optimizer": "adafactor"},
    "padded": {"padded": True},
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One training step to record: its name in files, why it was chosen, and what the simulation says it reserves.

    ``needs_mib`` is that on an H200 with torch 2.13, in MiB: enough to leave out what a small card cannot hold.
    """

    name: str
    why: str
    workload: Workload
    needs_mib: int


def cell(text: str, needs_mib: int, why: str) -> Cell:
    """A cell from its words: ``bert-base 8x512 fp32 sdpa ckpt``; fused AdamW where no optimizer is named."""
    model, shape, *words = text.split()
    batch, length = shape.split("x")
    settings = {name: value for word in words for name, value in _SETTINGS[word].items()}
    workload = Workload(model=MODELS[model], batch_size=int(batch), seq_length=int(length), **settings)
    return Cell("-".join(text.split()), why, workload, needs_mib)


DEFAULT = (
    # The first dozen have every value of every setting.
    cell("bert-base 8x512 fp32 sdpa", 4044, "what all others are compared with"),
    cell("bert-base 8x512 fp16 sdpa", 3300, "autocast: copies of weights, loss scaling, attention in 16 bits"),
    cell("bert-base 8x512 fp32 eager", 6594, "attention written out, with its scores"),
    cell("bert-base 8x512 fp32 sdpa ckpt foreach", 2406, "recomputation in backward; temporaries of foreach"),
    cell("bert-base 8x512 bf16 sdpa padded", 3368, "autocast without scaling; a mask chooses another attention kernel"),
    cell("bert-base 1x128 fp32 sdpa", 1926, "the smallest: rounding, small blocks and workspaces show most"),
    cell("deberta-v3-base 8x512 fp16 eager", 7720, "attention of its own, in 16 bits"),
    cell("bert-large 32x512 bf16 sdpa", 21428, "the largest: large segments, and how they are split"),
    cell("distilbert 2x128 fp32 sdpa adafactor", 990, "an optimizer that keeps little and computes much"),
    cell("roberta-base 32x128 fp16 sdpa foreach padded", 3778, "positions made from padding; a larger vocabulary"),
    cell("bert-large 2x512 fp16 eager ckpt padded", 5378, "checkpointing under autocast: casts again in backward"),
    cell("roberta-base 8x128 bf16 eager adafactor", 1768, "eager attention in bf16"),
    # BERT-base, one or two things changed.
    cell("bert-base 8x512 bf16 sdpa", 3300, "bf16 beside fp16"),
    cell("bert-base 8x512 fp16 eager", 5354, "scores under autocast: softmax in fp32"),
    cell("bert-base 8x512 fp32 sdpa padded", 4116, "a mask in fp32"),
    cell("bert-base 8x512 fp16 sdpa padded", 3368, "a mask in fp16"),
    cell("bert-base 8x512 fp32 sdpa foreach", 4140, "foreach beside fused: temporaries as large as the model"),
    cell("bert-base 8x512 fp32 sdpa adafactor", 3444, "Adafactor beside AdamW"),
    cell("bert-base 8x512 fp16 sdpa ckpt", 2084, "checkpointing under autocast"),
    cell("bert-base 32x512 fp32 sdpa", 11372, "four times the batch"),
    cell("bert-base 1x512 fp32 sdpa", 1986, "batch 1: what a diagnosis extrapolates from"),
    cell("bert-base 2x512 fp32 sdpa", 2224, "batch 2: what a diagnosis extrapolates from"),
    cell("bert-base 8x128 fp32 sdpa", 2136, "a quarter of the length"),
    cell("bert-base 8x512 fp32 eager padded", 6634, "a mask that is added to scores"),
    cell("bert-base 8x512 fp32 eager ckpt", 2438, "scores that are recomputed"),
    # The other models, as BERT-base.
    cell("bert-large 8x512 fp32 sdpa", 10546, "twice the layers, wider"),
    cell("roberta-base 8x512 fp32 sdpa", 4210, "RoBERTa's head and embeddings"),
    cell("distilbert 8x512 fp32 sdpa", 2278, "half the layers, no token types, its own head"),
    cell("deberta-v3-base 8x512 fp32 eager", 10608, "disentangled attention in fp32"),
    cell("bert-large 8x512 fp16 sdpa", 8826, "autocast copies of a large model"),
    cell("roberta-base 8x512 fp16 eager padded", 5672, "positions, mask and scores under autocast"),
    cell("distilbert 32x512 fp16 sdpa", 4604, "few layers, large batch"),
    cell("deberta-v3-base 8x512 bf16 eager ckpt", 3388, "disentangled attention, recomputed"),
    cell("bert-large 8x512 fp32 sdpa ckpt", 5568, "the advice most often given for a large model"),
    cell("roberta-base 32x512 bf16 sdpa ckpt", 3238, "checkpointing at a large batch"),
    cell("distilbert 8x512 fp32 eager padded", 3572, "DistilBERT's mask"),
    cell("deberta-v3-base 8x512 fp16 eager padded", 7720, "DeBERTa's mask"),
    # Sizes between, and combinations.
    cell("bert-base 1x512 fp16 sdpa", 2076, "batch 1 under autocast"),
    cell("bert-base 2x512 fp16 sdpa", 2068, "batch 2 under autocast"),
    cell("bert-base 32x512 fp16 sdpa", 8246, "batch 32 under autocast"),
    cell("bert-base 32x512 fp32 eager", 22136, "scores at a large batch"),
    cell("bert-base 32x128 fp32 sdpa", 4044, "short and many: as many tokens as 8 x 512"),
    cell("bert-base 32x128 bf16 sdpa", 3300, "short and many under autocast"),
    cell("bert-base 8x512 bf16 eager", 5354, "softmax from bf16"),
    cell("bert-base 8x512 bf16 sdpa ckpt padded", 2064, "mask and recomputation in bf16"),
    cell("bert-base 8x512 fp16 sdpa foreach", 3388, "foreach after unscaling"),
    cell("bert-base 8x512 fp16 sdpa adafactor", 2732, "Adafactor after unscaling"),
    cell("bert-base 32x512 bf16 eager ckpt foreach", 4002, "all that is large at once"),
    cell("bert-base 2x128 fp16 eager ckpt adafactor padded", 1320, "all that is small at once"),
    cell("bert-base 2x128 fp32 sdpa", 2076, "the second smallest"),
    cell("bert-large 8x512 bf16 eager", 14256, "scores of 16 heads"),
    cell("bert-large 32x128 fp16 sdpa adafactor padded", 6666, "a large model with a small optimizer"),
    cell("bert-large 2x128 bf16 sdpa ckpt foreach padded", 6514, "a large model, next to no activations"),
    cell("roberta-base 1x512 fp32 eager", 2348, "batch 1, another model"),
    cell("distilbert 32x128 bf16 sdpa ckpt foreach", 1514, "a small model, next to no activations"),
    cell("distilbert 1x128 fp16 sdpa", 1192, "the smallest of all"),
    cell("deberta-v3-base 2x128 fp32 eager padded", 3518, "relative positions at a short length"),
    cell("deberta-v3-base 32x128 fp16 eager foreach", 7024, "short and many"),
    cell("deberta-v3-base 8x128 fp32 eager adafactor", 3732, "the largest embedding with Adafactor's factors"),
    cell("bert-large 1x128 fp32 sdpa foreach", 6598, "the optimizer's peak is the step's"),
)
GRIDS = {"default": DEFAULT, "quick": DEFAULT[:10]}


def choose(grid: str, patterns: Sequence[str] = ()) -> tuple[Cell, ...]:
    """The cells of a grid, in its order; with ``patterns`` only those whose name matches one (``*`` and ``?``).

    Raises:
        UsageError: no such grid, or a pattern that no cell matches.
    """
    if grid not in GRIDS:
        raise UsageError(f"there is no grid {grid!r}", hint=f"--grid {' or '.join(GRIDS)}")
    cells = GRIDS[grid]
    for pattern in patterns:
        if not any(fnmatchcase(cell.name, pattern) for cell in cells):
            raise UsageError(f"no cell of the grid {grid} is called {pattern}", hint="--list names them")
    return tuple(cell for cell in cells if not patterns or _matches(cell, patterns))


def _matches(cell: Cell, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(cell.name, pattern) for pattern in patterns)


def beyond(total_bytes: int) -> Cell:
    """A cell that needs a quarter more than a card of ``total_bytes``: how running out is recorded on any card."""
    small, large = (_named(f"bert-base-{batch}x512-fp32-eager") for batch in (8, 32))
    growth = (large.needs_mib - small.needs_mib) // (large.workload.batch_size - small.workload.batch_size)
    wanted = total_bytes * 5 // 4 // MIB
    batch = small.workload.batch_size + max(1, -(-(wanted - small.needs_mib) // growth))
    needs = small.needs_mib + growth * (batch - small.workload.batch_size)
    return cell(f"bert-base {batch}x512 fp32 eager", needs, "meant to run out of memory")


def _named(name: str) -> Cell:
    return next(cell for cell in DEFAULT if cell.name == name)


def reason_to_skip(cell: Cell, device: Device, *, running_out: bool) -> str:
    """Why the cell says nothing on this card; empty where it does. ``running_out``: what does not fit is wanted."""
    if cell.workload.precision is Precision.BF16 and device.capability < BF16_CAPABILITY:
        return f"compute capability {device.compute_capability} has no bf16 arithmetic"
    needs, has = cell.needs_mib * MIB, device.allocator_limit_bytes
    if needs > has and not running_out:
        return f"predicted to need {format_bytes(needs)}, the card has {format_bytes(has)}; --with-oom runs it"
    return ""


def facts_of(model: str) -> ModelFacts:
    """The model's facts: those of the catalogue, which are the same everywhere, before any on this machine.

    Raises:
        InputError: found nowhere.
    """
    found = from_catalogue(model)
    return found if isinstance(found, ModelFacts) else resolve_model(model, offline=True)
