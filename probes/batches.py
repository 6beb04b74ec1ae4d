"""Synthetic batches: real token ids, masks and labels of the workload's shapes, on the CPU.

What is the same in every row or at every position is an expanded tensor, which takes no memory here: the probe may
be of a batch that this machine could not hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import torch

from memdoctor.records import Task, Workload

MASKED_SHARE = 0.15  # of the tokens carry a label in masked language modelling (BERT, section 3.1)
IGNORED = -100  # label of the tokens that carry none (transformers)
SHORTEST_ROW = 0.5  # of the length, in a padded batch
SHORT_TEXT = 64  # tokens of a question or a choice, at most: max_query_length of transformers' run_squad.py
DRAWN_TOKENS = 1 << 20  # a batch of more tokens repeats one row
_CHARACTERS = 0xD800  # code points of a model that reads characters and has no vocabulary
_PAIRS = (Task.QUESTION_ANSWERING, Task.MULTIPLE_CHOICE, Task.NEXT_SENTENCE)  # two texts in a row


def make_batch(model: torch.nn.Module, config: Any, workload: Workload, seed: int) -> dict[str, torch.Tensor]:
    """The tensors that a data collator would hand to the model: those that its ``forward`` names.

    Shapes: ``[batch, length]``; ``[batch, choices, length]`` for multiple choice, where ``num_labels`` is the
    number of choices. In a padded batch one row has the full length and the others are shorter. Where passages are
    rows of the batch, or the model is called several times in a step, make one batch for each call.
    """
    generator = torch.Generator().manual_seed(seed)
    choices = (workload.num_labels,) if workload.task is Task.MULTIPLE_CHOICE else ()
    shape = (workload.batch_size, *choices, workload.seq_length)
    mask = _attention_mask(shape, workload.padded, generator)
    ids = _token_ids(config, workload, mask, generator)
    accepted = inspect.signature(model.forward).parameters
    batch = {"input_ids": ids, "attention_mask": mask, **_structure(config, workload, ids, accepted)}
    batch |= _labels(config, workload, batch, generator)
    if "input_ids" in accepted and "attention_mask" not in accepted:  # FNet mixes all tokens, padding too
        del batch["attention_mask"]
    return batch


def _attention_mask(shape: tuple[int, ...], padded: bool, generator: torch.Generator) -> torch.Tensor:
    if not padded:
        return torch.ones((), dtype=torch.long).expand(shape)
    length = shape[-1]
    shortest = max(1, int(length * SHORTEST_ROW))
    lengths = torch.randint(shortest, max(length, shortest + 1), shape[:-1], generator=generator).flatten()
    lengths[0] = length if lengths.numel() > 1 else max(1, length - 1)
    return (torch.arange(length) < lengths.view(*shape[:-1], 1)).long()


def _token_ids(config: Any, workload: Workload, mask: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random tokens between the special ones that ``config`` names: first, last and between two texts."""
    shape, length = mask.shape, mask.shape[-1]
    repeats = mask.numel() > DRAWN_TOKENS and not workload.padded
    first, end, pad = (_special(config, *names) for names in (_FIRST, _END, _PAD))
    low, high = _ordinary(config, (first, end, pad))
    ids = torch.randint(low, high, (1, length) if repeats else (mask.numel() // length, length), generator=generator)
    lengths = mask.sum(-1).view(-1, 1) if workload.padded else torch.tensor([[length]])
    if first is not None:
        ids[:, 0] = first
    if end is not None:
        ids.scatter_(1, (lengths - 1).expand(ids.shape[0], 1), end)
        if workload.task in _PAIRS and length > 4:
            ids[:, _ends_of_first_text(workload)] = end
    if repeats:
        return ids.view(*(1,) * (len(shape) - 1), length).expand(shape)
    ids = ids.view(shape)
    return ids.masked_fill_(mask == 0, pad or 0) if workload.padded else ids


_FIRST, _END, _PAD = ("cls_token_id", "bos_token_id"), ("sep_token_id", "eos_token_id"), ("pad_token_id",)


def _special(config: Any, *names: str) -> int | None:
    """The first of these token ids that the model has."""
    values = [getattr(config, name, None) for name in names]
    values = [value[0] if isinstance(value, list) and value else value for value in values]
    return next((value for value in values if isinstance(value, int) and 0 <= value < _vocabulary(config)), None)


def _ordinary(config: Any, special: Collection[int | None]) -> tuple[int, int]:
    """A range of ids past the special tokens at its start and before those at its end."""
    vocabulary = _vocabulary(config)
    low = min(1000, vocabulary // 2)
    return low, min((one for one in special if one is not None and one > low), default=vocabulary)


def _vocabulary(config: Any) -> int:
    size = getattr(config, "vocab_size", _CHARACTERS)
    assert isinstance(size, int)
    return size


def _ends_of_first_text(workload: Workload) -> list[int]:
    """Where a pair of texts has its two separators in the middle: after a short question, or before a short choice.

    As RoBERTa joins two texts; Longformer attends globally from the question, or from the choice.
    """
    length = workload.seq_length
    shortest_row = max(4, int(length * SHORTEST_ROW)) if workload.padded else length
    short = min(SHORT_TEXT, length // 4)
    end = max(1, shortest_row - 2 - short) if workload.task is Task.MULTIPLE_CHOICE else max(1, short)
    end = min(end, shortest_row - 3)
    return [end, end + 1]


def _structure(
    config: Any, workload: Workload, ids: torch.Tensor, accepted: Collection[str]
) -> dict[str, torch.Tensor]:
    """What else a tokenizer or processor makes: token types, boxes of words on a page, the decoder's tokens."""
    made = {}
    zero = torch.zeros((), dtype=torch.long)
    if "token_type_ids" in accepted and getattr(config, "type_vocab_size", 1) != 1:  # DeBERTa takes and ignores them
        made["token_type_ids"] = zero.expand(ids.shape)
    if "bbox" in accepted:
        made["bbox"] = zero.expand(*ids.shape, 4)
    if "decoder_input_ids" in accepted and workload.task is Task.BASE:  # heads shift the labels or the ids themselves
        made["decoder_input_ids"] = ids
    return made


def _labels(
    config: Any, workload: Workload, batch: Mapping[str, torch.Tensor], generator: torch.Generator
) -> dict[str, torch.Tensor]:
    rows, length = workload.batch_size, workload.seq_length

    def pick(limit: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, limit, shape, generator=generator)

    def of_tokens(make: Any) -> torch.Tensor:
        repeats = rows * length > DRAWN_TOKENS
        labels: torch.Tensor = make(1 if repeats else rows)
        return labels.expand(rows, length)

    match workload.task:
        case Task.SEQUENCE_CLASSIFICATION:
            return {"labels": _labels_of_rows(config, workload, generator)}
        case Task.MULTIPLE_CHOICE:
            return {"labels": pick(workload.num_labels, rows)}
        case Task.NEXT_SENTENCE:
            return {"labels": pick(2, rows)}
        case Task.TOKEN_CLASSIFICATION:
            return {"labels": of_tokens(lambda drawn: pick(workload.num_labels, drawn, length))}
        case Task.MASKED_LM:
            return {"labels": of_tokens(lambda drawn: _masked_tokens(config, (drawn, length), generator))}
        case Task.CAUSAL_LM | Task.SEQ2SEQ_LM:
            ids, mask = batch["input_ids"], batch["attention_mask"]
            return {"labels": ids.masked_fill(mask == 0, IGNORED) if workload.padded else ids}
        case Task.QUESTION_ANSWERING:
            return {"start_positions": pick(length, rows), "end_positions": pick(length, rows)}
        case Task.BASE:
            return {}


def _labels_of_rows(config: Any, workload: Workload, generator: torch.Generator) -> torch.Tensor:
    """One class for each row; numbers for regression (one label), and for several classes at once."""
    rows, labels = workload.batch_size, workload.num_labels
    if getattr(config, "problem_type", None) == "multi_label_classification":
        return torch.randint(0, 2, (rows, labels), generator=generator).float()
    if labels == 1:
        return torch.rand(rows, generator=generator)
    return torch.randint(0, labels, (rows,), generator=generator)


def _masked_tokens(config: Any, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    labels = torch.randint(0, _vocabulary(config), shape, generator=generator)
    chosen = torch.rand(shape, generator=generator) < MASKED_SHARE
    return labels.masked_fill_(~chosen, IGNORED)
