"""One simulated step of BERT beside the other estimators that need no GPU: seconds, bytes, and what each leaves out.

Run as ``python tests/benchmarks/bench_step.py [--repeat N]``. Imports and the first step of a process, which imports
the model's class, are left out. torch's MemTracker runs the same step (forward, backward, optimizer) on fake CPU
tensors; what ``accelerate estimate-memory`` computes is called as a function, since the command asks the model hub.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

os.environ.update(PYTORCH_JIT="0", OMP_NUM_THREADS="1")  # as in a worker

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from memdoctor.analysis import peak_of
from memdoctor.catalogue import find_gpu, find_model
from memdoctor.probes.batches import make_batch
from memdoctor.probes.models import build_model
from memdoctor.probes.simulated.probe import simulate
from memdoctor.records import Device, Workload

MIB = 2**20
BASE, LARGE = "bert-base-uncased", "bert-large-uncased"


def config_of(model: str) -> dict[str, Any]:
    """What the catalogue knows of config.json."""
    entry = find_model(model)
    assert entry is not None
    return {"model_type": entry.model_type, **entry.config}


def card() -> Device:
    """The reference card."""
    entry = find_gpu("T4")
    assert entry is not None
    return Device(
        name=entry.name, total_bytes=entry.total_bytes, compute_capability=entry.compute_capability,
        context_bytes=entry.context_bytes, context_error_bytes=entry.context_error_bytes,
        context_source=entry.context_source, source=entry.total_source,
    )  # fmt: skip


def ours(workload: Workload) -> float:
    """Peak reserved, MiB, of one simulated step."""
    return peak_of(simulate(workload, card(), config_of(workload.model), "", steps=1)).reserved_bytes / MIB


def mem_tracker(workload: Workload) -> float:
    """Peak of torch's MemTracker, MiB, over one step on fake CPU tensors."""
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode() as fake:
        model = build_model(config_of(workload.model), workload)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)
        batch = make_batch(model, model.config, workload, seed=1)
        del batch["attention_mask"]  # of ones, which a real run passes over; MemTracker cannot say that it is of ones
        batch = {name: fake.from_tensor(value) for name, value in batch.items()}
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *batch.values())
        with tracker:
            model(**batch)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
    peak = tracker.get_tracker_snapshot("peak")
    return sum(kinds["Total"] for kinds in peak.values()) / MIB


def estimate_memory(workload: Workload) -> float:
    """What ``accelerate estimate-memory`` prints as needed for training with Adam, MiB."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    with torch.device("meta"):
        model = build_model(config_of(workload.model), workload)
    total, _ = calculate_maximum_sizes(model)
    return max(estimate_training_usage(total, "float32").values()) / MIB


def seconds_of(run: Callable[[], float]) -> tuple[float, float]:
    """Seconds that the run takes, and the MiB that it tells."""
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    mebibytes = run()
    return time.perf_counter() - started, mebibytes


def main() -> None:
    """Measure in rounds, so that what else the machine does falls on all alike, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    rounds = parser.parse_args().repeat
    base = Workload(model=BASE)
    runs: dict[str, tuple[Callable[[], float], str]] = {
        "one step, BERT-base, 8 x 512": (lambda: ours(base), "reserved"),
        "one step, BERT-large, 8 x 512": (lambda: ours(Workload(model=LARGE)), "reserved"),
        "one step, BERT-base, 1 x 64": (lambda: ours(replace(base, batch_size=1, seq_length=64)), "reserved"),
        "one step, BERT-base, 512 x 512": (lambda: ours(replace(base, batch_size=512)), "reserved"),
        "torch MemTracker, BERT-base, 8 x 512": (
            lambda: mem_tracker(base), "without allocator, CUDA's kernels and workspaces, clipping, context",
        ),
        "accelerate estimate-memory, BERT-base": (
            lambda: estimate_memory(base), "weights, gradients and Adam only; knows no batch and no length",
        ),
    }  # fmt: skip
    for run, _ in runs.values():
        run()  # imports, and caches of shapes, are left out
    taken: dict[str, list[float]] = {label: [] for label in runs}
    told: dict[str, float] = {}
    for _ in range(rounds):
        for label, (run, _) in runs.items():
            seconds, told[label] = seconds_of(run)
            taken[label].append(seconds)
    for label, (_, note) in runs.items():
        values = taken[label]
        spread = f"({min(values):.2f} to {max(values):.2f})"
        print(f"{label:<40} {statistics.median(values):6.2f} s {spread:<17} {told[label]:9.1f} MiB  {note}")
    labels = list(runs)
    for one, other in ((1, 0), (3, 2), (4, 0)):
        ratios = [a / b for a, b in zip(taken[labels[one]], taken[labels[other]], strict=True)]
        print(f"{labels[one]} to {labels[other]}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
