"""From a workload to a job: what the simulated, the GPU and the CPU probe have in common before the first step."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from memdoctor.probes.job import Batch, Job, never
from memdoctor.probes.optimizers import build_optimizer
from memdoctor.records import Loop, Precision, Workload

Batches = Callable[[Workload, int], Batch]
"""Makes the real CPU tensors of a batch for a workload and a seed."""

AUTOCAST_DTYPES = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}


def make_job(
    workload: Workload,
    model: torch.nn.Module,
    device_type: str,
    next_batch: Callable[[int], Batch],
    *,
    first_scale: float = 2.0**16,
    leave_out: Callable[[int], bool] = never,
) -> Job:
    """The optimizer, the scaler and autocast for a model that is on its device. ``first_scale`` is the GradScaler's.

    ``leave_out`` is as in :class:`memdoctor.probes.job.Job`.

    Raises:
        InputError: the optimizer does not exist, lacks its library or refuses its arguments.
    """

    def autocast() -> AbstractContextManager[Any]:
        dtype = AUTOCAST_DTYPES.get(workload.precision)
        return torch.autocast(device_type, dtype=dtype) if dtype else nullcontext()

    scaler = torch.amp.GradScaler(device_type, init_scale=first_scale, enabled=workload.precision is Precision.FP16)
    optimizer = build_optimizer(
        workload.optimizer, model, optim_args=workload.optim_args, target_modules=workload.optim_target_modules,
        gradient_accumulation_steps=workload.gradient_accumulation_steps, loss_scaling=scaler.is_enabled(),
        grouped=workload.loop is Loop.TRAINER,
    )  # fmt: skip
    return Job(workload, model, optimizer, next_batch, autocast, scaler, leave_out)


@contextmanager
def without_collection() -> Iterator[None]:
    """Python's cyclic collector runs when it likes; without it the same workload gives the same bytes."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
