"""Synthetic batches: real token ids, masks and labels of the workload's shapes, on the CPU."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from memdoctor.records import Task, Workload

MASKED_SHARE = 0.15  # of the tokens carry a label in masked language modelling (BERT, section 3.1)
IGNORED = -100  # label of the tokens that carry none (transformers)
_CHARACTERS = 0xD800  # code points of a model that reads characters and has no vocabulary
SHORTEST_ROW = 0.5  # of the length, in a padded batch


def make_batch(model: torch.nn.Module, config: Any, workload: Workload, seed: int) -> dict[str, torch.Tensor]:
    """The tensors that a data collator would hand to the model.

    Shapes: ``[batch, length]``; ``[batch, choices, length]`` for multiple choice, where ``num_labels`` is the
    number of choices. In a padded batch one row has the full length and the others are shorter.
    """
    generator = torch.Generator().manual_seed(seed)
    choices = (workload.num_labels,) if workload.task is Task.MULTIPLE_CHOICE else ()
    shape = (workload.batch_size, *choices, workload.seq_length)
    mask = _attention_mask(shape, workload.padded, generator)
    vocabulary = getattr(config, "vocab_size", _CHARACTERS)
    low = min(1000, vocabulary // 2)  # past the special tokens
    ids = torch.randint(low, vocabulary, shape, generator=generator)
    pad = getattr(config, "pad_token_id", None) or 0
    batch = {"input_ids": ids * mask + pad * (1 - mask), "attention_mask": mask}
    accepted = inspect.signature(model.forward).parameters
    if "token_type_ids" in accepted and getattr(config, "type_vocab_size", 0) > 1:
        batch["token_type_ids"] = torch.zeros(shape, dtype=torch.long)
    return {**batch, **_labels(config, workload, generator)}


def _attention_mask(shape: tuple[int, ...], padded: bool, generator: torch.Generator) -> torch.Tensor:
    if not padded:
        return torch.ones(shape, dtype=torch.long)
    length = shape[-1]
    shortest = max(1, int(length * SHORTEST_ROW))
    lengths = torch.randint(shortest, max(length, shortest + 1), shape[:-1], generator=generator).flatten()
    lengths[0] = length if lengths.numel() > 1 else max(1, length - 1)
    return (torch.arange(length) < lengths.view(*shape[:-1], 1)).long()


def _labels(config: Any, workload: Workload, generator: torch.Generator) -> dict[str, torch.Tensor]:
    rows, length = workload.batch_size, workload.seq_length

    def pick(limit: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, limit, shape, generator=generator)

    match workload.task:
        case Task.SEQUENCE_CLASSIFICATION:
            regression = workload.num_labels == 1
            return {"labels": torch.rand(rows, generator=generator) if regression else pick(workload.num_labels, rows)}
        case Task.MULTIPLE_CHOICE:
            return {"labels": pick(workload.num_labels, rows)}
        case Task.NEXT_SENTENCE:
            return {"labels": pick(2, rows)}
        case Task.TOKEN_CLASSIFICATION:
            return {"labels": pick(workload.num_labels, rows, length)}
        case Task.MASKED_LM:
            labels = pick(config.vocab_size, rows, length)
            chosen = torch.rand(rows, length, generator=generator) < MASKED_SHARE
            return {"labels": labels.where(chosen, IGNORED)}
        case Task.QUESTION_ANSWERING:
            return {"start_positions": pick(length, rows), "end_positions": pick(length, rows)}
        case Task.BASE:
            return {}
