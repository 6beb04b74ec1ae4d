"""How long a step takes with nobody watching: a few more steps of a job that was recorded, timed."""

from __future__ import annotations

import statistics
from dataclasses import replace
from time import perf_counter

import torch

from memdoctor.probes.bare import Unwatched
from memdoctor.probes.history import Allocator
from memdoctor.probes.job import Job
from memdoctor.probes.step import train

STEPS_TIMED = 3
MOST_SECONDS = 10.0
"""For all of it. Where the recorded steps took longer, nothing is timed: a probe that is long does not get longer."""


def seconds_of_step(job: Job, allocator: Allocator, recorded_seconds: float) -> float | None:
    """Median seconds of an optimizer step, its batches' making included; ``None`` where it could not be timed.

    The recorded steps, which took ``recorded_seconds``, were the warm-up, save one that lets kernels settle without the
    tracker. Whatever goes wrong here (memory, too) is no failure of the probe: what was recorded is complete.
    """
    if recorded_seconds > MOST_SECONDS:
        return None
    untold = replace(job, workload=replace(job.workload, evaluate=False))
    end = perf_counter() + MOST_SECONDS
    taken: list[float] = []
    try:
        for _ in range(1 + STEPS_TIMED):
            taken.append(_timed(untold, allocator))
            if perf_counter() + taken[-1] > end:
                break
    except Exception:  # noqa: BLE001  # whatever it is, the recording is there, and this is an extra
        return None
    return statistics.median(taken[1:]) if len(taken) > 1 else None


def _timed(job: Job, allocator: Allocator) -> float:
    _wait(allocator.device)
    began = perf_counter()
    train(job, Unwatched(allocator), 1)
    _wait(allocator.device)
    return perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
