"""Medians of what a user waits for, without a cache and with a warm one.

Run as ``python tests/benchmarks/bench_main_job.py [--repeat N]``. The user's own cache is left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import psutil

COMMAND = [sys.executable, "-m", "memdoctor"]


def run(*arguments: str, cache: str = "off") -> float:
    """Seconds that the command takes, with ``cache`` as MEMDOCTOR_CACHE."""
    environment = {**os.environ, "MEMDOCTOR_CACHE": cache}
    started = time.perf_counter()
    subprocess.run(
        [*COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    return time.perf_counter() - started


def one_probe(model: str) -> float:
    """Seconds of one probe (two optimizer steps) in a worker that is warm, as the examination tells."""
    arguments = ["probe", "--model", model, "--repeat", "1", "--toggle", "batch_size=7", "--json", "-q", "--no-cache"]
    text = subprocess.run([*COMMAND, *arguments], check=True, capture_output=True, text=True).stdout
    seconds = json.loads(text)["provenance"]["seconds"]
    assert isinstance(seconds, float)
    return seconds


def host_memory(*arguments: str) -> float:
    """The most resident memory, MiB, of the command and its workers together, looked at ten times a second."""
    process = psutil.Popen([*COMMAND, *arguments, "--no-cache"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        try:
            family = [process, *process.children(recursive=True)]
            most = max(most, sum(member.memory_info().rss for member in family))
        except psutil.Error:
            pass
        time.sleep(0.1)
    return most / 2**20


def median(label: str, unit: str, measure: Callable[[], float], repeat: int) -> None:
    """Print the median and the range of ``repeat`` measurements."""
    values = sorted(measure() for _ in range(repeat))
    print(f"{label:<52} {statistics.median(values):8.2f} {unit}  ({values[0]:.2f} to {values[-1]:.2f})", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    median("memdoctor --help", "s", lambda: run("--help"), repeat)
    for model in ("bert-base-uncased", "bert-large-uncased"):
        job = ("diagnose", "--model", model)
        median(f"memdoctor {' '.join(job)}", "s", lambda job=job: run(*job), repeat)
        with tempfile.TemporaryDirectory() as cache:
            run(*job, cache=cache)
            median("  the same with a warm cache", "s", lambda job=job, cache=cache: run(*job, cache=cache), repeat)
        median(f"one cold probe of {model}, imports left out", "s", lambda model=model: one_probe(model), repeat)
    job = ("diagnose", "--model", "bert-base-uncased")
    median("host memory of diagnose --model bert-base-uncased", "MiB", lambda: host_memory(*job), min(repeat, 3))


if __name__ == "__main__":
    main()
