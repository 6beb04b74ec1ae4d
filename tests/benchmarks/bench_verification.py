"""Seconds of a verification of 20 steps on MiniLM. Run as ``python tests/benchmarks/bench_verification.py``.

Whole commands, imports and the tokenizer included: 4 micro-batches of 2 rows of 64 tokens of real text, for the real
Trainer and for a loop of one's own. ``--repeat N`` runs each so often. The model's package is of the extra ``dev``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LOOPS = ROOT / "tests" / "probes" / "verification"
COMMAND = [sys.executable, "-m", "memdoctor", "probe", "--verify-accumulation", "--model", "minilm:build"]
FINISHED = (0, 3)  # a check that fails is a result


def seconds(loop: str) -> float:
    """Seconds that the command takes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(LOOPS), str(ROOT)])}
    started = time.perf_counter()
    done = subprocess.run([*COMMAND, "--loop", loop, "-q"], env=environment, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in FINISHED:
        raise SystemExit(f"the command ended with {done.returncode}")
    return time.perf_counter() - started


def main() -> None:
    """Measure and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    for loop in ("trainer", "loops_of_others:right"):
        values = sorted(seconds(loop) for _ in range(repeat))
        spread = f"({values[0]:.1f} to {values[-1]:.1f})"
        print(f"20-step verification of MiniLM, {loop:<24} {statistics.median(values):6.1f} s {spread}", flush=True)


if __name__ == "__main__":
    main()
