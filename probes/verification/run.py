"""The verification of one loop on one workload: the runs in their order, and the record."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

import torch

from memdoctor.errors import InputError, UsageError
from memdoctor.probes.adapting import base_of
from memdoctor.probes.cpu import ready_subject
from memdoctor.probes.host import with_what_is_held
from memdoctor.probes.models import attention_of
from memdoctor.probes.optimizers import updates_in_backward
from memdoctor.probes.provenance import provenance_of
from memdoctor.probes.real import Subject
from memdoctor.probes.resolve import FACTORY_KEY
from memdoctor.probes.verification.checks import even, loss_falls, steps, uneven
from memdoctor.probes.verification.frugal import kept_at_hand
from memdoctor.probes.verification.loops import loop_of
from memdoctor.probes.verification.micro_batches import (
    Rows,
    densely_labelled,
    evenly_labelled,
    has_token_labels,
    unevenly_labelled,
)
from memdoctor.probes.verification.peak_check import peak
from memdoctor.probes.verification.running import Bench
from memdoctor.records import Device, Verification, VerificationPlan, Workload


def verify(
    workload: Workload, device: Device, config: Mapping[str, Any], model_source: str, plan: VerificationPlan
) -> Verification:
    """Run the plan's loop on this machine's processor, and check what accumulation is held to.

    Raises:
        UsageError: an optimizer that has no gradients to look at.
        InputError: the model or the loop does not exist, fails, or does not follow the contract.
        MeasureError: the Trainer cannot run here, the model refuses, or the machine has no memory left.
    """
    started = time.perf_counter()
    here = with_what_is_held(device)
    _check_optimizer(workload)
    loop = loop_of(plan)  # before the model, which takes long to be made
    subject = ready_subject(config, workload)
    workload = replace(workload, attention=attention_of(base_of(subject.model)))
    rows = _rows(workload, subject, made_up=FACTORY_KEY not in config)
    with kept_at_hand():
        return _checked(Bench(workload, plan, subject.model, loop), rows, here, subject.weights, model_source, started)


def _checked(bench: Bench, rows: Rows, here: Device, weights: str, model_source: str, started: float) -> Verification:
    workload, plan = bench.workload, bench.plan
    evenly, unevenly, reason = _labelled(workload, rows)
    gradients, leftover = even(bench, evenly)
    unlike = uneven(bench, unevenly, reason)
    micro = evenly.micro_batches()
    trained = bench.training([*micro[: bench.accumulation] * plan.steps, micro[-1]])
    falls, losses = loss_falls(bench, trained)
    memory, peaks = peak(bench, micro)
    return Verification(
        workload=workload, device=here, plan=plan,
        provenance=provenance_of(
            "measured", model_source, started, attention_kernels=(), notes=(weights, _setting())
        ),
        checks=(gradients, unlike, leftover, steps(bench, trained), memory, falls), peaks=peaks,
        losses=tuple(loss if isfinite(loss) else None for loss in losses),
    )  # fmt: skip


def _check_optimizer(workload: Workload) -> None:
    if updates_in_backward(workload.optimizer):
        raise UsageError(
            f"--optim {workload.optimizer} cannot accumulate gradients",
            why="it updates each weight in backward and drops its gradient, micro-batch by micro-batch",
            hint="another --optim, or no gradient accumulation",
        )


def _rows(workload: Workload, subject: Subject, *, made_up: bool) -> Rows:
    """Micro-batches for two steps and one that is left over, all rows of one batch."""
    count = 2 * workload.gradient_accumulation_steps + 1
    batch = subject.batches(replace(workload, batch_size=workload.batch_size * count), 1)
    rows = Rows({name: value.contiguous() for name, value in batch.items()}, workload.batch_size, count)
    if not any(value.dim() and value.shape[0] == workload.batch_size * count for value in batch.values()):
        raise InputError(
            f"{workload.model} makes no batch of {workload.batch_size * count} rows",
            why="micro-batches are made of the rows of one batch, and none of its tensors has so many",
            hint="let the factory take batch_size, or return an example whose rows can be repeated",
        )
    return Rows(densely_labelled(rows.batch, workload.task), rows.rows, rows.count) if made_up else rows


def _labelled(workload: Workload, rows: Rows) -> tuple[Rows, Rows | None, str]:
    """The rows with even label tokens, those with uneven ones, and why there are none."""
    if not has_token_labels(rows.batch):
        each = (
            f"each row has its own label or labels, so every micro-batch of {rows.rows} counts the same, and the mean "
            "of the micro-batches' means is the mean; it would matter for a label at each token (-100: none)"
        )
        return rows, None, each
    evenly = evenly_labelled(rows)
    if evenly is None:
        return rows, None, "a micro-batch has no label token at all (labels are -100): more rows, or longer ones"
    few = "every micro-batch has one label token: more rows, or longer ones"
    return evenly, unevenly_labelled(rows, workload.gradient_accumulation_steps), few


def _setting() -> str:
    return f"{torch.get_num_threads()} threads on {platform.machine()}"
