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


def test_every_format_s_time_is_printed(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "benchmarks" / "bench_reports.py"), "--repeat", "1", "--events", "3000",
         "--model", "prajjwal1/bert-tiny"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=True,
        cwd=tmp_path,
    )  # fmt: skip
    first, *rest = ran.stdout.splitlines()
    assert int(first.split()[0].replace(",", "")) >= 3000
    assert [line.split()[0] for line in rest] == [
        "html", "png", "svg", "md", "csv", "json.gz", "trace.json", "pickle",
    ]  # fmt: skip
