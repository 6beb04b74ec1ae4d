"""Calling the model and finding its loss, as ``Trainer.compute_loss`` of transformers 5 and accelerate do it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from memdoctor.errors import MeasureError
from memdoctor.probes.adapting import base_of
from memdoctor.probes.batches import IGNORED
from memdoctor.probes.job import Batch, Job, told_as_the_models
from memdoctor.probes.trainer_habits import DIVIDES_LABEL_COUNT
from memdoctor.records import Loop, Precision

_HALF = (torch.float16, torch.bfloat16)


def compute_loss(job: Job, batch: Batch, items: torch.Tensor | None, *, passes: int = 1) -> tuple[torch.Tensor, Any]:
    """The loss of one micro-batch, and the model's outputs, those of each pass where there are several.

    The model is called ``passes`` times before the losses are added up. ``items`` is the number of labels of the
    step, from :func:`count_items`.

    Raises:
        MeasureError: there is no loss in what the model returned.
    """
    inputs: dict[str, Any] = dict(batch)
    smoothing = job.workload.label_smoothing_factor
    labels = inputs.pop("labels", None) if smoothing else None
    if items is not None:
        inputs["num_items_in_batch"] = items
    outputs = [_call(job, inputs) for _ in range(passes)]
    losses = [_loss_of(out) if labels is None else _smoothed(job, out, labels, items) for out in outputs]
    loss = losses[0]
    for other in losses[1:]:
        loss = loss + other
    return loss, outputs[0] if len(outputs) == 1 else outputs


def count_items(model: torch.nn.Module, batches: Sequence[Batch]) -> torch.Tensor | None:
    """``Trainer._get_num_items_in_batch``: labels that count, on the device; ``None`` where none are taken."""
    if "labels" not in batches[0] or not _accepts_loss_arguments(model):
        return None
    total: Any = sum(batch["labels"].ne(IGNORED).sum() for batch in batches)
    counted = total / 1 if DIVIDES_LABEL_COUNT else total
    assert isinstance(counted, torch.Tensor)
    return counted


def _accepts_loss_arguments(model: Any) -> bool:
    inner = base_of(model)
    said = getattr(inner, "accepts_loss_kwargs", None)
    if said is not None:
        return bool(said)
    parameters = inspect.signature(inner.forward).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def _call(job: Job, inputs: Mapping[str, Any]) -> Any:
    positional = [value for name, value in inputs.items() if name.isdigit()]
    named = {name: value for name, value in inputs.items() if not name.isdigit()}
    with job.autocast(), told_as_the_models():
        outputs = job.model(*positional, **named)
    if dataclasses.is_dataclass(outputs) and not isinstance(outputs, (Mapping, type)):
        outputs = {item.name: getattr(outputs, item.name) for item in dataclasses.fields(outputs)}
    if job.workload.precision is not Precision.FP32 and job.workload.loop is Loop.TRAINER:
        return _to_fp32(outputs)  # accelerate's ConvertOutputsToFp32
    return outputs


def _to_fp32(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in _HALF else value
    if isinstance(value, Mapping):
        return {name: _to_fp32(item) for name, item in value.items()}
    return type(value)(map(_to_fp32, value)) if type(value) in (tuple, list) else value


def _loss_of(outputs: Any) -> torch.Tensor:
    """``outputs.loss``; a model without a head is trained on the mean of its first output."""
    candidates = outputs
    if isinstance(outputs, Mapping):
        candidates = [outputs["loss"]] if outputs.get("loss") is not None else list(outputs.values())
    for value in candidates if isinstance(candidates, (list, tuple)) else [candidates]:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value if value.dim() == 0 else value.mean()
    raise MeasureError(
        "the model returned no loss",
        why=f"it returned {type(outputs).__name__}, and no tensor of numbers in it",
        hint="return the loss, a tuple that begins with it, or a mapping with the key 'loss'",
    )


def _smoothed(job: Job, outputs: Any, labels: torch.Tensor, items: torch.Tensor | None) -> torch.Tensor:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    from transformers.trainer_pt_utils import LabelSmoother

    smoother: Any = LabelSmoother(epsilon=job.workload.label_smoothing_factor)
    keywords: dict[str, Any] = {}
    if "num_items_in_batch" in inspect.signature(smoother.__call__).parameters:  # transformers 5.24
        keywords["num_items_in_batch"] = items
    shifts = type(base_of(job.model)).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    loss = smoother(outputs, labels, shift_labels=shifts, **keywords)
    assert isinstance(loss, torch.Tensor)
    return loss
