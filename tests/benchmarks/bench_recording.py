"""What recording costs a step: the card's memory (none), the host's memory, and seconds, beside the bare step.

Run as ``python tests/benchmarks/bench_recording.py [--model NAME] [--batch-size N] [--seq-length N] [--repeat N]``.
Needs a CUDA device. With ``--stand-in`` the step runs on the CPU, on the stand-in of CUDA's allocator of the tests: its
bytes say what recording takes of host memory, its seconds say nothing about a GPU.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from memdoctor.catalogue import find_model
from memdoctor.errors import MemdoctorError
from memdoctor.probes.bare import run_bare
from memdoctor.probes.cuda_allocator import CudaAllocator
from memdoctor.probes.gpu import run_watched
from memdoctor.probes.history import Allocator, Totals
from memdoctor.probes.real import real_subject
from memdoctor.records import Workload

MIB = 2**20
STEPS = 2


def config_of(model: str) -> dict[str, Any]:
    """What the catalogue knows of config.json."""
    entry = find_model(model)
    assert entry is not None
    return {"model_type": entry.model_type, **entry.config}


def stand_in() -> Allocator:
    """The stand-in of the tests, without scratch memory of kernels."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "standins" / "cuda"))
    from cuda_standin import CudaStandIn

    made: Allocator = CudaStandIn()
    return made


def bare(make: Callable[[], Allocator], config: dict[str, Any], workload: Workload) -> tuple[float, Totals]:
    """Seconds and the allocator's own counters of the step with nobody watching."""
    allocator, subject = make(), real_subject(config, workload)
    if isinstance(allocator, CudaAllocator):
        allocator.reset()  # and no history
    else:
        allocator.begin()
    started = time.perf_counter()
    run_bare(allocator, subject, workload, STEPS)
    totals = allocator.totals() if isinstance(allocator, CudaAllocator) else allocator.end().totals
    return time.perf_counter() - started, totals


def watched(make: Callable[[], Allocator], config: dict[str, Any], workload: Workload) -> tuple[float, Totals]:
    """The same with all of it watched."""
    allocator, subject = make(), real_subject(config, workload)
    allocator.begin()
    started = time.perf_counter()
    run = run_watched(allocator, subject, workload, STEPS)
    return time.perf_counter() - started, run.history.totals


def host_bytes(make: Callable[[], Allocator], config: dict[str, Any], workload: Workload) -> int:
    """What Python holds for the recording when the step is over: the tracker's notes and the history."""
    allocator, subject = make(), real_subject(config, workload)
    allocator.begin()
    tracemalloc.start()
    run = run_watched(allocator, subject, workload, STEPS)
    gc.collect()
    held = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/probes/*")])
    tracemalloc.stop()
    del run
    return sum(item.size for item in held.statistics("filename"))


def main() -> None:
    """Measure and print; what is in the way is one error."""
    try:
        measure()
    except MemdoctorError as error:
        error.hint = error.hint.replace("--backend simulated", "--stand-in")  # this program's own option
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(error.exit_code)


def measure() -> None:
    """Measure and print.

    Raises:
        MeasureError: there is no CUDA device that works.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bert-base-uncased")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--seq-length", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--stand-in", action="store_true")
    given = parser.parse_args()
    make = stand_in if given.stand_in else CudaAllocator
    config = config_of(given.model)
    workload = Workload(model=given.model, batch_size=given.batch_size, seq_length=given.seq_length)
    bare(make, config, workload)  # imports, and kernels that are loaded when they are first called
    alone = [bare(make, config, workload) for _ in range(given.repeat)]
    seen = [watched(make, config, workload) for _ in range(given.repeat)]
    without, with_it = alone[-1][1], seen[-1][1]
    host = host_bytes(make, config, workload)
    peak = without.peak_allocated_bytes
    where = "the stand-in, on the CPU" if given.stand_in else torch.cuda.get_device_name()
    shape = f"batch {given.batch_size} x {given.seq_length}, {STEPS} steps"
    print(f"{given.model}, {shape} on {where}, torch {torch.__version__}")
    for name in ("peak_allocated_bytes", "peak_reserved_bytes"):
        before, after = getattr(without, name), getattr(with_it, name)
        print(f"{name:<22} {before:>15,} bare {after:>15,} recorded {after - before:>+9,}")
    print(f"host memory            {host:>15,} of Python's, {100 * host / peak:.2f} % of the peak allocated")
    first, second = (statistics.median(row[0] for row in rows) for rows in (alone, seen))
    print(f"seconds                {first:>15.3f} bare {second:>15.3f} recorded, {second / first:.2f} times")


if __name__ == "__main__":
    main()
