"""A real model with real values on a real device, ready to be trained: what the GPU and the CPU probe share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import torch

from memdoctor.probes import user_models
from memdoctor.probes.adapting import adapt, base_of
from memdoctor.probes.batches import make_batch
from memdoctor.probes.job import Batch
from memdoctor.probes.models import build_model
from memdoctor.probes.preparing import Batches
from memdoctor.probes.resolve import FACTORY_KEY
from memdoctor.probes.weights import load_model, weights_in
from memdoctor.records import Workload

_SPREAD = 0.02  # initializer_range of BERT


@dataclass(frozen=True, slots=True)
class Subject:
    """What is trained: a model on the host, and batches for it. ``made_up``: its weights are not its own yet.

    ``weights`` says where they are from, for the report.
    """

    model: torch.nn.Module
    batches: Batches
    made_up: bool
    weights: str


def real_subject(config: Mapping[str, Any], workload: Workload) -> Subject:
    """The model that ``config`` describes or its factory makes, on the host, adapted as the workload says.

    A local directory's own weights are loaded; others are for :func:`make_up_weights` to make.

    Raises:
        InputError: the model, head or attention does not exist, its weights cannot be read, or the factory fails.
    """
    if FACTORY_KEY in config:
        made = user_models.load(config[FACTORY_KEY], workload)
        return Subject(adapt(made.module, workload), made.batches, made_up=False, weights="the factory's weights")
    file = weights_in(workload.model)
    if file is None:
        built, weights = build_model(config, workload), "made-up weights of the usual size"
    else:
        built, weights = load_model(config, workload, file)
    model = adapt(built, workload)
    inner = base_of(model)
    return Subject(model, partial(make_batch, inner, inner.config), made_up=file is None, weights=weights)


def make_up_weights(model: torch.nn.Module, seed: int = 0) -> None:
    """Values of the usual size for every parameter, in place and where it is, so that no loss overflows."""
    generator = torch.Generator(next(model.parameters()).device).manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.is_floating_point():
                continue
            if parameter.dim() > 1:
                parameter.normal_(0, _SPREAD, generator=generator)
            else:
                parameter.fill_(float(name.endswith("weight")))  # norms scale by one; biases are zero


def batches_on(device: torch.device, workload: Workload, batches: Batches) -> Callable[[int], Batch]:
    """Gives the next batch of so many rows on ``device``, as accelerate's data loader does."""
    numbers = count(1)

    def next_batch(rows: int) -> Batch:
        real = batches(replace(workload, batch_size=rows), next(numbers))
        return {name: value.contiguous().to(device, copy=True) for name, value in real.items()}

    return next_batch
