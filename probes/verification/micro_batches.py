"""Micro-batches that are rows of one batch, with as many label tokens in each as a check asks for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from memdoctor.probes.batches import IGNORED
from memdoctor.probes.job import Batch
from memdoctor.records import Task

LABELS = "labels"
_SMALL_SHARE = 20  # a micro-batch of few label tokens has a twentieth of the others'


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of ``count`` micro-batches, each of ``rows`` rows; what has no rows belongs to every one."""

    batch: Batch
    rows: int
    count: int

    def micro_batches(self) -> tuple[Batch, ...]:
        """All of them, in order."""
        return tuple(self.together(index, index + 1) for index in range(self.count))

    def together(self, first: int, last: int) -> Batch:
        """Micro-batches ``first`` to ``last`` (exclusive) as one batch."""
        total = self.rows * self.count
        return {
            name: value[first * self.rows : last * self.rows] if value.dim() and value.shape[0] == total else value
            for name, value in self.batch.items()
        }

    def alike(self) -> bool:
        """Whether all micro-batches are the same: then the last one's gradient is that of all."""
        first, *others = self.micro_batches()
        return all(torch.equal(first[name], other[name]) for other in others for name in first)


def label_tokens(batch: Batch) -> int:
    """Label tokens that count: those at the first position never do where labels are shifted, and are never given."""
    return int(batch[LABELS][:, 1:].ne(IGNORED).sum())


def has_token_labels(batch: Batch) -> bool:
    """Whether there is a label for each token, of which those of -100 count for nothing."""
    labels = batch.get(LABELS)
    tokens = [value for name, value in batch.items() if name != LABELS and value.dim() > 1]
    return (
        labels is not None
        and labels.dim() == 2
        and not labels.is_floating_point()
        and any(value.shape[:2] == labels.shape for value in tokens)
    )


def densely_labelled(batch: Batch, task: Task) -> Batch:
    """A made-up batch for masked language modelling with every token for its own label: enough to choose from."""
    if task is not Task.MASKED_LM or "input_ids" not in batch:
        return batch
    ids = batch["input_ids"]
    mask = batch.get("attention_mask", torch.ones_like(ids))
    return {**batch, LABELS: ids.masked_fill(mask == 0, IGNORED)}


def evenly_labelled(rows: Rows) -> Rows | None:
    """The same rows with as many label tokens in every micro-batch; ``None`` where one has none."""
    most = min(map(label_tokens, rows.micro_batches()))
    return _labelled(rows, [most] * rows.count) if most else None


def unevenly_labelled(rows: Rows, every: int) -> Rows | None:
    """The same rows with few label tokens in the first of every so many micro-batches; ``None`` where that is none."""
    most = min(map(label_tokens, rows.micro_batches()))
    few = max(1, most // _SMALL_SHARE)
    return _labelled(rows, [few if index % every == 0 else most for index in range(rows.count)]) if most > few else None


def _labelled(rows: Rows, counts: list[int]) -> Rows:
    labels = rows.batch[LABELS].clone()
    labels[:, 0] = IGNORED
    for part, count in zip(labels.split(rows.rows), counts, strict=True):
        places = part.ne(IGNORED).nonzero()[count:]
        part[places[:, 0], places[:, 1]] = IGNORED
    return Rows({**rows.batch, LABELS: labels}, rows.rows, rows.count)
