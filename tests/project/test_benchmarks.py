"""The benchmarks say what they need where it is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_without_a_gpu_the_cost_of_recording_is_one_error() -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "benchmarks" / "bench_recording.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (6, "")
    what, why, hint = ran.stderr.splitlines()
    assert what.startswith("Error: ")
    assert "GPU" in what
    assert why.startswith("  why: ")
    assert hint.startswith("  try: ")
    assert "--backend" not in hint
