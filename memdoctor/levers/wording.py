"""A change of the workload in the words that people use."""

from __future__ import annotations

from memdoctor.matrix import ALLOC_CONF
from memdoctor.records import Change


def in_words(change: Change) -> str:
    """A change as one reads it: ``fp16 + checkpointing``, ``batch 4 x 2 micro-batches``."""
    rest = dict(change)
    words = []
    if {"batch_size", "gradient_accumulation_steps"} <= rest.keys():
        words.append(f"batch {rest.pop('batch_size')} x {rest.pop('gradient_accumulation_steps')} micro-batches")
    return " + ".join((*words, *(_in_words(name, value) for name, value in rest.items())))


def _in_words(name: str, value: object) -> str:
    match name, value:
        case "precision", _:
            return str(value)
        case "attention", _:
            return f"{value} attention"
        case "lora_rank", 0:
            return "no LoRA"
        case "lora_rank", _:
            return f"LoRA rank {value}"
        case "freeze", (*patterns,):
            return f"{', '.join(map(str, patterns))} frozen" if patterns else "nothing frozen"
        case _, "" if name == ALLOC_CONF:
            return "no allocator settings"
        case _ if name == ALLOC_CONF:
            return str(value)
    words = name.removeprefix("gradient_").removeprefix("zero_grad_").replace("_", " ")
    if value is None:
        return f"no {words}"
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {value}"
