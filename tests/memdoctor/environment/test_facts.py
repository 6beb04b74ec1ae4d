"""The environment in lines and as data: everything that is known is there, and the unknown says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memdoctor.environment import document, facts
from memdoctor.probes.cached import Usage
from memdoctor.probes.context import Context
from memdoctor.probes.nvml import Absence, NoGpu
from memdoctor.probes.seen import Unknown
from memdoctor.probes.torch_build import TorchBuild

GIB = 1 << 30
MIB = 1 << 20
STRANGER = 2**22 + 17


def test_everything_about_a_card_is_told(nvml: Any, environment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memdoctor.probes.processes.sees_all_processes", lambda: True)
    card = nvml.card(used=3 * GIB, processes=[nvml.process(STRANGER, 2 * GIB)])
    context = Context(124 * MIB, 2 * MIB, "measured: process bytes by pid less reserved")
    uuid = "GPU-00000000-1111-2222-3333-444444444444"
    lines = facts(environment(card, contexts={uuid: context}))
    told = {name: text for name, text in lines.items() if name.startswith(("GPU", "CUDA", "driver", "torch is"))}
    assert told == {
        "torch is built for": "CUDA 13.0",
        "CUDA_VISIBLE_DEVICES": "not set",
        "CUDA_DEVICE_ORDER": "not set",
        "driver": "580.65.06",
        "CUDA of the driver": "13.0",
        "GPU 0": "Tesla T4, 3.00 GiB of 15.00 GiB in use, 1.00 GiB more kept by the driver, compute capability 7.5",
        "GPU 0 UUID": uuid,
        "GPU 0 processes": f"unnamed ({STRANGER}, dead) 2.00 GiB",
        "GPU 0 context": "124.00 MiB ± 2.00 MiB, measured: process bytes by pid less reserved",
        "GPU 0 bus": "00000000:01:00.0",
        "GPU 0 compute mode": "default",
        "GPU 0 MIG": "off",
        "CUDA 0": f"GPU 0, {uuid}",
    }


def test_instances_have_lines_of_their_own(nvml: Any, environment: Any) -> None:
    lines = facts(environment(nvml.cut_card(nvml.instance(0), nvml.instance(1))))
    assert lines["GPU 0 MIG"] == "on"
    assert lines["GPU 0 MIG 1 UUID"].startswith("MIG-00000001")
    assert lines["CUDA 0"].startswith("GPU 0, MIG-00000000")
    assert "one MIG instance" in lines["CUDA's order"]


def test_what_is_unknown_says_why(environment: Any) -> None:
    functions = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMigMode", "nvmlDeviceGetComputeMode")
    lines = facts(environment(properties={"faults": dict.fromkeys(functions, 4)}))
    for name in ("GPU 0 processes", "GPU 0 MIG", "GPU 0 compute mode"):
        assert lines[name] == "unknown: Insufficient Permissions"


def test_cards_that_are_not_there_or_do_not_answer(nvml: Any, environment: Any) -> None:
    assert facts(environment(gpus=NoGpu("why", Absence.FAILED), visible=None))["GPUs"] == "none: why"
    faults = {"nvmlDeviceGetHandleByIndex_v2 0": 15}
    assert facts(environment(properties={"faults": faults}))["GPU 0"] == "does not answer: GPU is lost"
    hidden = facts(environment(variables={"CUDA_VISIBLE_DEVICES": ""}))
    assert "sees no GPU" in hidden["CUDA"]
    assert hidden["CUDA_VISIBLE_DEVICES"] == "empty"


@pytest.mark.parametrize(
    ("torch", "text"),
    [
        (TorchBuild("2.13.0", None, None), "CPUs only"), (TorchBuild("2.13.0", None, "7.1"), "ROCm 7.1"),
        (TorchBuild("2.13.0", Unknown("no file"), Unknown("no file")), "unknown: no file"),
    ],
)  # fmt: skip
def test_what_torch_is_built_for(environment: Any, torch: TorchBuild, text: str) -> None:
    assert facts(environment(torch=torch))["torch is built for"] == text


def test_all_of_it_is_json(nvml: Any, environment: Any) -> None:
    faults = {"nvmlDeviceGetComputeRunningProcesses_v3": 3}
    made = environment(nvml.card(used=GIB), nvml.cut_card(nvml.instance(), number=1), properties={"faults": faults})
    told = document(made)
    read = json.loads(json.dumps(told, allow_nan=False))
    assert read == told
    assert read["environment"] == facts(made)
    first, second = read["gpus"]["gpus"]
    assert (first["total_bytes"], first["used_bytes"]) == (15 * GIB, GIB)
    assert first["processes"] == {"unknown": "Not Supported"}
    assert second["mig"]["instances"][0]["total_bytes"] == 5 * GIB
    assert read["cuda_order"]["uuids"] == [second["mig"]["instances"][0]["uuid"]]
    assert all(set(problem) == {"what", "why", "hint"} for problem in read["problems"])
    assert read["problems"]


@pytest.mark.parametrize("name", ["", "  "])
def test_a_card_without_a_name_is_called_so(nvml: Any, environment: Any, name: str) -> None:
    line = facts(environment(nvml.card(name=name)))["GPU 0"]
    assert (
        line
        == "a card without a name, 0 B of 15.00 GiB in use, 1.00 GiB more kept by the driver, compute capability 7.5"
    )


def test_where_simulated_probes_are_kept(environment: Any) -> None:
    made = environment(probe_cache=Usage(Path("caches") / "probes", 11, 3 * MIB // 2))
    assert facts(made)["probe cache"] == f"{Path('caches') / 'probes'}, 11 probes, 1.50 MiB"
    assert document(made)["probe_cache"] == {
        "directory": str(Path("caches") / "probes"), "probes": 11, "bytes": 3 * MIB // 2,
    }  # fmt: skip
    nowhere = environment()
    assert facts(nowhere)["probe cache"] == "off"
    assert document(nowhere)["probe_cache"] is None
