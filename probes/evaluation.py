"""Evaluation after a training step, as ``Trainer.evaluation_loop`` of transformers 5 runs it.

All predictions stay on the GPU unless ``eval_accumulation_steps`` moves them to the host, and every batch makes new
tensors of all so far (``nested_concat``) while the old ones are still there: the reason why evaluation runs out of
memory where training did not. Without ``prediction_loss_only`` predictions are kept, as with ``compute_metrics``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from memdoctor.probes.forward import compute_loss, count_items
from memdoctor.probes.job import Job, Watch
from memdoctor.records import Task

# find_labels of transformers: what a head takes as its labels.
_LABEL_NAMES = {Task.QUESTION_ANSWERING: ("start_positions", "end_positions")}


def evaluate(job: Job, watch: Watch) -> None:
    """Predict ``eval_samples`` samples; the variables live as long as those of the Trainer's loop do."""
    workload = job.workload
    rows, left = workload.eval_batch_size, workload.eval_samples
    job.model.eval()
    all_losses, all_logits, all_labels = _Gathered(), _Gathered(), _Gathered()
    number = 0
    while left > 0:
        inputs = job.fetch(min(rows, left), watch)
        left -= rows
        losses, logits, labels = _predict(job, inputs)
        losses = losses.repeat(rows)
        all_losses.add(losses)
        if not workload.prediction_loss_only:
            all_logits.add(logits)
            all_labels.add(labels)
        number += 1
        if workload.eval_accumulation_steps is not None and number % workload.eval_accumulation_steps == 0:
            for gathered in (all_losses, all_logits, all_labels):
                gathered.move_to_host()
            del losses, logits, labels, inputs
            watch.empty_cache()
    for gathered in (all_losses, all_logits, all_labels):
        gathered.move_to_host()
    job.model.train()


class _Gathered:
    """``EvalLoopContainer``: the tensors of all batches so far, as one."""

    def __init__(self) -> None:
        self._tensors: Any = None

    def add(self, tensors: Any) -> None:
        self._tensors = tensors if self._tensors is None else _concatenated(self._tensors, tensors)

    def move_to_host(self) -> None:
        self._tensors = None


def _predict(job: Job, inputs: Mapping[str, torch.Tensor]) -> tuple[Any, Any, Any]:
    """``Trainer.prediction_step``: loss, logits and labels, detached."""
    names = _LABEL_NAMES.get(job.workload.task, ("labels",))
    labels = _single(tuple(inputs[name].detach() for name in names if name in inputs))
    with torch.no_grad():
        items = count_items(job.model, [inputs])
        loss, outputs = compute_loss(job, inputs, items)
        loss = loss.detach().mean()
        logits = None if job.workload.prediction_loss_only else _single(_logits_of(job.model, outputs))
    return loss, logits, labels


def _logits_of(model: torch.nn.Module, outputs: Any) -> Any:
    if not isinstance(outputs, Mapping):
        return _detached(tuple(outputs[1:]) if isinstance(outputs, (tuple, list)) else (outputs,))
    ignored = {"loss", *getattr(getattr(model, "config", None), "keys_to_ignore_at_inference", ["cache"])}
    return _detached(tuple(value for name, value in outputs.items() if name not in ignored and value is not None))


def _detached(value: Any) -> Any:
    return tuple(map(_detached, value)) if isinstance(value, (tuple, list)) else value.detach()


def _single(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values


def _concatenated(old: Any, new: Any) -> Any:
    if isinstance(old, tuple):
        return tuple(_concatenated(before, now) for before, now in zip(old, new, strict=True))
    return torch.cat((torch.atleast_1d(old), torch.atleast_1d(new)))
