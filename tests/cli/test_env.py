"""``memdoctor env`` as it is typed, on machines with pretended cards: it tells, and it always ends with 0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GIB = 1 << 30
STRANGER = 2**22 + 17


def test_a_card_and_what_is_wrong_with_it(nvml: Any, run: Any, with_gpus: Any) -> None:
    card = nvml.card(used=3 * GIB, compute_mode=3, processes=[nvml.process(STRANGER, 2 * GIB)])
    done = run("env", **with_gpus(card, names={str(STRANGER): "/usr/bin/trainer"}))
    assert (done.returncode, done.stderr) == (0, "")
    assert "Tesla T4, 3.00 GiB of 15.00 GiB in use" in done.stdout
    assert "trainer" in done.stdout
    assert "problem: GPU 0 lets one process in" in done.stdout
    assert done.stdout.count("\n  why: ") == done.stdout.count("\n  try: ") == done.stdout.count("problem: ") > 1


def test_the_same_as_json(nvml: Any, run: Any, with_gpus: Any) -> None:
    done = run("env", "--json", CUDA_VISIBLE_DEVICES="1", **with_gpus(nvml.card(0), nvml.card(1, used=GIB)))
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert [gpu["used_bytes"] for gpu in told["gpus"]["gpus"]] == [0, GIB]
    assert told["cuda_order"] == {"uuids": [nvml.card(1)["uuid"]], "certain": True, "notes": []}
    assert told["environment"]["CUDA 0"] == f"GPU 1, {nvml.card(1)['uuid']}"
    assert any("nobody who is listed" in problem["what"] for problem in told["problems"])


@pytest.mark.parametrize("code", [4, 9, 12, 18, 999])
def test_nvml_that_does_not_start_is_told(run: Any, with_gpus: Any, code: int) -> None:
    done = run("env", **with_gpus(faults={"nvmlInitWithFlags": code}))
    assert (done.returncode, done.stderr) == (0, "")
    assert "none: NVML cannot start" in done.stdout


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetName", "nvmlDeviceGetUUID",
        "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMigMode",
        "nvmlSystemGetDriverVersion", "nvmlShutdown",
    ],
)  # fmt: skip
def test_no_card_that_is_lost_in_the_middle_is_an_error(nvml: Any, run: Any, with_gpus: Any, function: str) -> None:
    done = run("env", **with_gpus(nvml.card(0), nvml.card(1), faults={function: [nvml.NVML_ERROR_GPU_IS_LOST, 1]}))
    assert (done.returncode, done.stderr) == (0, "")


def test_no_torch_is_imported(nvml: Any, run: Any, with_gpus: Any, tmp_path: Path) -> None:
    environment = with_gpus(nvml.card())
    (tmp_path / "torch.py").write_text("raise ImportError('torch must not be imported here')\n", encoding="utf-8")
    environment["PYTHONPATH"] = f"{tmp_path}:{environment['PYTHONPATH']}"
    assert "Tesla T4" in run("env", **environment).stdout


def test_settings_that_pytorch_refuses_are_a_problem_and_no_error(run: Any) -> None:
    done = run("env", PYTORCH_CUDA_ALLOC_CONF="nonsense:1")
    assert done.returncode == 0
    assert "problem: PYTORCH_CUDA_ALLOC_CONF" in done.stdout
