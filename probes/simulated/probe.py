"""The simulated probe: the real training step on a GPU that is not there, its memory to the byte."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from memdoctor.probes import STEPS, user_models
from memdoctor.probes.adapting import adapt, base_of
from memdoctor.probes.batches import make_batch
from memdoctor.probes.models import attention_of, build_model
from memdoctor.probes.moving import replace_tensors
from memdoctor.probes.notes import notes_of
from memdoctor.probes.preparing import Batches
from memdoctor.probes.provenance import provenance_of
from memdoctor.probes.resolve import FACTORY_KEY
from memdoctor.probes.simulated.gpu import registered
from memdoctor.probes.simulated.recording import record
from memdoctor.records import Device, Examination, Workload


def simulate(
    workload: Workload,
    device: Device,
    config: Mapping[str, Any],
    model_source: str,
    steps: int = STEPS,
    *,
    all_micro_steps: bool = False,
) -> Examination:
    """Run ``steps`` optimizer steps of ``workload`` on a simulated ``device``.

    ``config`` holds the facts of the model's config.json, ``model_source`` says where they are from.
    Of micro-steps that repeat, only the first run, unless ``all_micro_steps`` are asked for.

    Raises:
        InputError: the model, head, attention or optimizer does not exist.
        MeasureError: this torch cannot host a simulated GPU, or the model's code asks for data.
    """
    started = time.perf_counter()
    gpu = registered()
    subject = _subject(config, workload)
    workload = replace(workload, attention=attention_of(base_of(subject.model)))
    recording = record(
        workload, device, subject.model, subject.fake, subject.batches, steps, all_micro_steps=all_micro_steps
    )
    provenance = provenance_of(
        "simulated", model_source, started, attention_kernels=tuple(sorted(gpu.attention.chosen)) or ("eager",),
        notes=notes_of(workload, device, subject.model, recording.without_gradient),
    )  # fmt: skip
    return Examination(
        workload, device, provenance, recording.outcome, recording.timeline,
        repeated_micro_steps=recording.repeated_micro_steps,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Subject:
    """What is trained: a model of fake tensors on the host, and real batches for it."""

    model: torch.nn.Module
    fake: FakeTensorMode
    batches: Batches


def _subject(config: Mapping[str, Any], workload: Workload) -> _Subject:
    if FACTORY_KEY in config:
        made = user_models.load(config[FACTORY_KEY], workload)
        fake = FakeTensorMode(allow_non_fake_inputs=True)  # modules may hold tensors that are neither of their own
        replace_tensors(made.module, fake.from_tensor)
        with fake:
            return _Subject(adapt(made.module, workload), fake, made.batches)
    with FakeTensorMode() as fake:
        model = adapt(build_model(config, workload), workload)
    inner = base_of(model)
    return _Subject(model, fake, partial(make_batch, inner, inner.config))
