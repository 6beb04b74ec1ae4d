"""A block of DeepSpeed's JSON configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from memdoctor.patches.edit import Edit
from memdoctor.patches.optimizers import DEEPSPEED
from memdoctor.records import Precision

CHECKPOINTING_NOTE = (
    "# activation checkpointing is switched on and off in the model or in TrainingArguments; "
    "the block activation_checkpointing of this file does neither"
)
OPTIMIZER_NOTE = "# optimizer: the params that are yours, such as lr, stay beside the type"

_KEYS = {
    "batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "max_grad_norm": "gradient_clipping",
}


def deepspeed_block(edit: Edit) -> str:
    """Notes, a line each that begins with ``#``, then the settings that DeepSpeed has for the change, if there are any.

    DeepSpeed's ``activation_checkpointing`` sets up ``deepspeed.checkpointing`` for models that call it; it switches
    nothing on in a model of transformers.
    """
    settings = _settings(edit)
    block = [json.dumps(settings, indent=2)] if settings else []
    return "\n".join((*_notes(edit, settings), *block))


def _notes(edit: Edit, settings: dict[str, Any]) -> Iterator[str]:
    if "gradient_checkpointing" in edit.changed:
        yield CHECKPOINTING_NOTE
    if "optimizer" in settings:
        yield OPTIMIZER_NOTE


def _settings(edit: Edit) -> dict[str, Any]:
    settings: dict[str, Any] = {
        key: getattr(edit.after, name) for name, key in _KEYS.items() if name in edit.changed
    }  # fmt: skip
    for precision in (Precision.FP16, Precision.BF16):
        if "precision" in edit.changed and precision in (edit.before.precision, edit.after.precision):
            settings[precision.value] = {"enabled": edit.after.precision is precision}
    if "optimizer" in edit.changed and edit.after.optimizer in DEEPSPEED:
        settings["optimizer"] = DEEPSPEED[edit.after.optimizer]
    return settings
