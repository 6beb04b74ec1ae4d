"""Python that makes the data: how the tokenizer cuts and pads, and how much of it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator

from memdoctor.patches.edit import Edit
from memdoctor.records import Task


def data_lines(edit: Edit) -> str:
    """The statements that say the change."""
    return "\n".join(_statements(edit))


def _statements(edit: Edit) -> Iterator[str]:
    after = edit.after
    if "num_labels" in edit.changed and after.task is Task.MULTIPLE_CHOICE:
        yield f"choices = choices[:{after.num_labels}]  # of each question"
    if {"seq_length", "padded"} & edit.changed:
        padding = f", padding={after.padded}" if "padded" in edit.changed else ""
        yield f"tokenized = tokenizer(texts, max_length={after.seq_length}, truncation=True{padding})"
    if "eval_samples" in edit.changed:
        yield f"eval_dataset = eval_dataset.select(range({after.eval_samples}))"
