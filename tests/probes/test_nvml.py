"""GPUs through NVML: whatever the library does, the answer is GPUs or a reason, never an exception or a made-up 0."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from memdoctor.probes.nvml import (
    MemoryReading,
    NoGpu,
    SeenGpu,
    Survey,
    Unknown,
    driver_version,
    gpu_with_uuid,
    read_memory,
    see_gpus,
    survey,
    visible_gpus,
)
from memdoctor.probes.seen import Absence, ComputeMode, GpuProcess, Mig, ProcessState, Why

GIB = 1 << 30
MIB = 1 << 20
NOBODY = 2**22 + 17  # above what Linux gives as a pid (PID_MAX_LIMIT)


def seen_gpus() -> tuple[SeenGpu, ...]:
    """The GPUs, which there must be."""
    seen = see_gpus()
    assert not isinstance(seen, NoGpu), seen.reason
    return seen


def surveyed() -> Survey:
    """What NVML tells, which it must."""
    seen = survey()
    assert isinstance(seen, Survey), seen.reason
    return seen


def no_gpu() -> NoGpu:
    """Why no GPU is seen."""
    seen = see_gpus()
    assert isinstance(seen, NoGpu)
    return seen


def processes(gpu: SeenGpu) -> tuple[GpuProcess, ...]:
    """Who is on it, which must be known."""
    assert not isinstance(gpu.processes, Unknown), gpu.processes.reason
    return gpu.processes


def reading(uuid: str, pid: int = NOBODY) -> MemoryReading:
    """The memory of the card, which must be told."""
    memory = read_memory(uuid, pid)
    assert isinstance(memory, MemoryReading), memory.reason
    return memory


def test_without_the_library_the_reason_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py" in no_gpu().reason
    assert no_gpu().absence is Absence.NO_PYNVML


@pytest.mark.parametrize(
    ("code", "words", "absence"),
    [
        (12, "Library Not Found", Absence.NO_DRIVER), (9, "Driver Not Loaded", Absence.NO_DRIVER),
        (18, "version mismatch", Absence.MISMATCH), (4, "Insufficient Permissions", Absence.NO_PERMISSION),
        (999, "Unknown Error", Absence.FAILED), (77, "code 77", Absence.FAILED),
    ],
)  # fmt: skip
def test_when_nvml_does_not_start_the_reason_is_its_own(
    nvml: Any, pretend_gpus: Any, code: int, words: str, absence: Absence
) -> None:
    pretend_gpus(nvml.card(), faults={"nvmlInitWithFlags": code})
    assert words in no_gpu().reason
    assert no_gpu().absence is absence
    assert driver_version() is None
    assert isinstance(read_memory(nvml.card()["uuid"], 1), NoGpu)
    assert isinstance(gpu_with_uuid(nvml.card()["uuid"]), NoGpu)
    assert isinstance(visible_gpus({}), NoGpu)


def test_everything_about_a_card_that_answers(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(used=3 * GIB))
    assert surveyed() == Survey(
        gpus=(
            SeenGpu(
                index=0, uuid="GPU-00000000-1111-2222-3333-444444444444", pci_bus_id="00000000:01:00.0",
                name="Tesla T4", total_bytes=15 * GIB, used_bytes=3 * GIB, driver_keeps_bytes=GIB,
                compute_capability="7.5", processes=(), compute_mode=ComputeMode.DEFAULT, mig=Mig(on=False),
            ),
        ),
        unreadable=(), driver="580.65.06", cuda="13.0",
    )  # fmt: skip


def test_gpus_are_in_nvmls_order(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(*(nvml.card(number, used=number * GIB) for number in range(3)))
    assert [(gpu.index, gpu.uuid[11], gpu.used_bytes) for gpu in seen_gpus()] == [
        (0, "0", 0), (1, "1", GIB), (2, "2", 2 * GIB),
    ]  # fmt: skip


def test_text_of_bytes_is_text(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card())
    as_text = surveyed()
    pretend_gpus(nvml.card(), bytes=True)
    assert surveyed() == as_text


def test_a_machine_with_the_driver_and_no_gpu_has_none(pretend_gpus: Any) -> None:
    pretend_gpus()
    assert no_gpu() == NoGpu("NVML sees no GPU", Absence.NO_CARD)
    assert surveyed().driver == "580.65.06"


ESSENTIAL = (
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetName", "nvmlDeviceGetUUID",
)  # fmt: skip


@pytest.mark.parametrize("function", ["nvmlDeviceGetCount_v2", *ESSENTIAL])
def test_an_error_where_it_counts_is_a_reason(nvml: Any, pretend_gpus: Any, function: str) -> None:
    pretend_gpus(nvml.card(), faults={function: 999})
    assert "Unknown Error" in no_gpu().reason


@pytest.mark.parametrize("function", ESSENTIAL)
def test_a_card_that_is_lost_in_the_middle_hides_no_other(nvml: Any, pretend_gpus: Any, function: str) -> None:
    pretend_gpus(nvml.card(0), nvml.card(1), faults={function: [15, 1]})
    seen = surveyed()
    assert [gpu.index for gpu in seen.gpus] == [0]
    assert [(gpu.index, "GPU is lost" in gpu.reason) for gpu in seen.unreadable] == [(1, True)]


def test_memory_that_is_not_told_is_a_reason(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(), faults={"nvmlDeviceGetMemoryInfo": 3, "nvmlDeviceGetMemoryInfo_v2": 3})
    assert "Not Supported" in no_gpu().reason  # cards that share the host's memory


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"total": 0, "reserved": 0}, "0 B in use of 0 B: that cannot be"),
        ({"used": 2**60}, "1048576.00 TiB in use of 16.00 GiB: that cannot be"),
        ({"reserved": 17 * GIB}, "17.00 GiB in use of 16.00 GiB: that cannot be"),
    ],
)
def test_memory_that_cannot_be_is_a_reason(nvml: Any, pretend_gpus: Any, broken: dict[str, int], told: str) -> None:
    pretend_gpus(nvml.card(**broken))
    assert no_gpu().reason == f"GPU 0 does not answer: no memory: {told}"


@pytest.mark.parametrize(
    "figures", [{"total": "much", "used": 0}, {"total": GIB, "used": -1}, {"total": 1.5, "used": 1}]
)
def test_memory_that_is_no_count_is_a_reason(
    nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch, figures: dict[str, Any]
) -> None:
    pretend_gpus(nvml.card())
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", lambda handle, version=None: SimpleNamespace(**figures))
    assert "is no count" in no_gpu().reason


@pytest.mark.parametrize("broken", [["a", "b"], [7], [7, 5, 0], [-7, 5], "7.5", None])
def test_a_capability_that_is_none_is_a_reason(nvml: Any, pretend_gpus: Any, broken: Any) -> None:
    pretend_gpus(nvml.card(0, capability=broken), nvml.card(1))
    assert [(gpu.index, gpu.compute_capability) for gpu in seen_gpus()] == [(1, "7.5")]
    assert [(gpu.index, "no compute capability" in gpu.reason) for gpu in surveyed().unreadable] == [(0, True)]


@pytest.mark.parametrize("empty", ["", " "])
def test_text_without_anything_in_it_is_no_answer(nvml: Any, pretend_gpus: Any, empty: str) -> None:
    pretend_gpus(nvml.card(0, bus=empty), nvml.card(1, uuid=empty), driver=empty)
    seen = surveyed()
    assert isinstance(seen.driver, Unknown)
    assert isinstance(seen.gpus[0].pci_bus_id, Unknown)
    assert [(gpu.index, gpu.reason) for gpu in seen.unreadable] == [(1, f"no UUID: the answer is {empty!r}")]


@pytest.mark.parametrize("old", [{"lacks": ["nvmlDeviceGetMemoryInfo_v2"]}, {"missing": ["nvmlMemory_v2"]}])
def test_an_old_driver_does_not_tell_what_it_keeps(nvml: Any, pretend_gpus: Any, old: dict[str, Any]) -> None:
    pretend_gpus(nvml.card(used=GIB), **old)
    (gpu,) = seen_gpus()
    assert (gpu.total_bytes, gpu.used_bytes) == (16 * GIB, 2 * GIB)
    assert isinstance(gpu.driver_keeps_bytes, Unknown)


@pytest.mark.parametrize("missing", ["nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetName", "nvmlDeviceGetUUID"])
def test_a_library_without_a_function_is_a_reason(nvml: Any, pretend_gpus: Any, missing: str) -> None:
    pretend_gpus(nvml.card(), missing=[missing])
    assert missing in no_gpu().reason


def test_what_can_be_done_without_is_unknown_with_its_reason(nvml: Any, pretend_gpus: Any) -> None:
    functions = (
        "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetComputeMode", "nvmlDeviceGetMigMode", "nvmlSystemGetDriverVersion",
        "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetComputeRunningProcesses_v3",
    )  # fmt: skip
    pretend_gpus(nvml.card(), faults=dict.fromkeys(functions, 4))
    seen, denied = surveyed(), Unknown("Insufficient Permissions", Why.NO_PERMISSION)
    (gpu,) = seen.gpus
    assert (gpu.pci_bus_id, gpu.compute_mode, gpu.mig, gpu.processes) == (denied,) * 4
    assert (seen.driver, seen.cuda) == (denied,) * 2


def test_a_struct_with_other_fields_is_unknown(nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(nvml.card())
    monkeypatch.setattr(nvml, "nvmlDeviceGetPciInfo_v3", lambda handle: SimpleNamespace(bus=1))
    monkeypatch.setattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", lambda handle: [SimpleNamespace(pid=1)])
    (gpu,) = seen_gpus()
    assert isinstance(gpu.pci_bus_id, Unknown)
    assert isinstance(gpu.processes, Unknown)
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryInfo", lambda handle, version=None: SimpleNamespace(free=1))
    assert "total" in no_gpu().reason


@pytest.mark.parametrize(("number", "mode"), list(enumerate(ComputeMode)))
def test_compute_modes(nvml: Any, pretend_gpus: Any, number: int, mode: ComputeMode) -> None:
    pretend_gpus(nvml.card(compute_mode=number))
    assert seen_gpus()[0].compute_mode is mode


def test_a_compute_mode_of_the_future_is_unknown(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(compute_mode=9))
    assert seen_gpus()[0].compute_mode == Unknown("it is number 9")


@pytest.mark.parametrize(
    "faults", [{}, {"nvmlDeviceGetCount_v2": 999}, {"nvmlDeviceGetName": 999}, {"nvmlShutdown": 999}]
)
def test_nvml_is_shut_down_whatever_happens(nvml: Any, pretend_gpus: Any, faults: dict[str, int]) -> None:
    pretend_gpus(nvml.card(), faults=faults)
    for ask in (see_gpus, driver_version, lambda: visible_gpus({}), lambda: read_memory(nvml.card()["uuid"], 1)):
        ask()
        assert nvml.started == 0


def test_an_error_while_shutting_down_loses_nothing(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(), faults={"nvmlShutdown": 999})
    assert len(seen_gpus()) == 1


@pytest.mark.parametrize(("number", "version"), [(13000, "13.0"), (12080, "12.8"), (11040, "11.4")])
def test_the_cuda_of_the_driver(pretend_gpus: Any, number: int, version: str) -> None:
    pretend_gpus(cuda=number)
    assert surveyed().cuda == version
    pretend_gpus(cuda=number, lacks=["nvmlSystemGetCudaDriverVersion_v2"])
    assert surveyed().cuda == version


def test_the_driver_tells_its_version(pretend_gpus: Any) -> None:
    pretend_gpus()
    assert driver_version() == "580.65.06"
    pretend_gpus(faults={"nvmlSystemGetDriverVersion": 999})
    assert driver_version() is None


# Processes


def test_a_process_has_its_name_and_its_bytes(nvml: Any, pretend_gpus: Any) -> None:
    psutil = pytest.importorskip("psutil")
    pretend_gpus(nvml.card(processes=[nvml.process(os.getpid(), 2 * GIB)]))
    (ours,) = processes(seen_gpus()[0])
    assert ours == GpuProcess(os.getpid(), psutil.Process().name(), 2 * GIB, ProcessState.ALIVE)


@pytest.mark.parametrize("untold", [None, 0, 2**64 - 1])
def test_bytes_that_are_not_told_are_none(nvml: Any, pretend_gpus: Any, untold: int | None) -> None:
    pretend_gpus(nvml.card(processes=[nvml.process(os.getpid(), untold), nvml.process(NOBODY, GIB)]))
    assert [process.used_bytes for process in processes(seen_gpus()[0])] == [None, GIB]


def test_a_process_that_computes_and_draws_is_one(nvml: Any, pretend_gpus: Any) -> None:
    kinds = [nvml.process(7, GIB, "Compute"), nvml.process(7, GIB, "Graphics"), nvml.process(8, MIB, "MPSCompute")]
    pretend_gpus(nvml.card(processes=kinds))
    assert [(process.pid, process.used_bytes) for process in processes(seen_gpus()[0])] == [(7, GIB), (8, MIB)]


def test_a_process_on_two_instances_holds_the_sum(nvml: Any, pretend_gpus: Any) -> None:
    shares = [nvml.process(7, GIB, gpu=1), nvml.process(7, MIB, gpu=2), nvml.process(8, 1, gpu=1),
              nvml.process(8, None, gpu=2)]  # fmt: skip
    pretend_gpus(nvml.card(processes=shares))
    assert [(process.pid, process.used_bytes) for process in processes(seen_gpus()[0])] == [(7, GIB + MIB), (8, None)]


def test_graphics_that_are_not_told_hide_no_computing(nvml: Any, pretend_gpus: Any) -> None:
    faults = {"nvmlDeviceGetGraphicsRunningProcesses_v3": 3, "nvmlDeviceGetMPSComputeRunningProcesses_v3": 4}
    pretend_gpus(nvml.card(processes=[nvml.process(7, GIB)]), faults=faults)
    assert [process.pid for process in processes(seen_gpus()[0])] == [7]


@pytest.mark.parametrize("code", [3, 4, 15, 999])
def test_a_list_that_is_not_told_is_no_empty_list(nvml: Any, pretend_gpus: Any, code: int) -> None:
    pretend_gpus(nvml.card(), faults={"nvmlDeviceGetComputeRunningProcesses_v3": code})
    assert isinstance(seen_gpus()[0].processes, Unknown)
    assert isinstance(reading(nvml.card()["uuid"]).others, Unknown)


def test_an_older_driver_has_an_older_list(nvml: Any, pretend_gpus: Any) -> None:
    card = nvml.card(processes=[nvml.process(7, GIB)])
    pretend_gpus(card, lacks=["nvmlDeviceGetComputeRunningProcesses_v3"])
    assert [process.pid for process in processes(seen_gpus()[0])] == [7]
    pretend_gpus(card, lacks=[f"nvmlDeviceGetComputeRunningProcesses_v{version}" for version in (2, 3)])
    unknown = seen_gpus()[0].processes
    assert isinstance(unknown, Unknown)
    assert unknown.why is Why.NO_FUNCTION


def test_a_name_that_the_system_does_not_have_is_the_drivers(nvml: Any, pretend_gpus: Any) -> None:
    card = nvml.card(processes=[nvml.process(NOBODY, GIB), nvml.process(NOBODY + 1, GIB)])
    pretend_gpus(card, names={str(NOBODY): "/usr/bin/trainer"})
    first, second = processes(seen_gpus()[0])
    assert first.name == "trainer"
    assert isinstance(second.name, Unknown)
    assert str(NOBODY + 1) in second.name.reason


@pytest.mark.parametrize(("whole_machine", "state"), [(True, ProcessState.DEAD), (False, ProcessState.UNSEEN)])
def test_a_pid_that_is_not_here_is_dead_only_where_all_can_be_seen(
    nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch, whole_machine: bool, state: ProcessState
) -> None:
    pytest.importorskip("psutil")
    monkeypatch.setattr("memdoctor.probes.processes.sees_all_processes", lambda: whole_machine)
    pretend_gpus(nvml.card(processes=[nvml.process(NOBODY, GIB)]))
    assert processes(seen_gpus()[0])[0].state is state


@contextmanager
def zombie() -> Iterator[int]:
    """A child that has ended and that nobody has waited for."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        yield child.pid
    finally:
        child.wait()


def test_a_zombie_is_called_one(nvml: Any, pretend_gpus: Any) -> None:
    pytest.importorskip("psutil")
    with zombie() as pid:
        pretend_gpus(nvml.card(processes=[nvml.process(pid, GIB)]))
        assert processes(seen_gpus()[0])[0].state is ProcessState.ZOMBIE


def test_without_psutil_names_are_the_drivers(nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    pretend_gpus(nvml.card(processes=[nvml.process(7, GIB), nvml.process(8, MIB)]), names={"7": "python"})
    named, unnamed = processes(seen_gpus()[0])
    assert named == GpuProcess(7, "python", GIB, ProcessState.UNKNOWN)
    assert unnamed.name == Unknown("psutil is not installed")


# MIG


def test_a_card_in_mig_mode_has_its_instances(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.cut_card(nvml.instance(0, used=GIB), nvml.instance(1, processes=[nvml.process(7, MIB)])))
    (card,) = seen_gpus()
    assert isinstance(card.mig, Mig)
    assert card.mig.on
    first, second = card.mig.instances
    assert (first.uuid[:12], first.total_bytes, first.used_bytes) == ("MIG-00000000", 5 * GIB, GIB)
    assert (first.index, first.compute_capability, first.pci_bus_id) == (0, "8.0", card.pci_bus_id)
    assert [process.pid for process in processes(second)] == [7]
    assert (card.is_instance, first.is_instance) == (False, True)


def test_instances_that_are_not_told_are_unknown(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.cut_card(nvml.instance()), faults={"nvmlDeviceGetMaxMigDeviceCount": 4})
    mig = seen_gpus()[0].mig
    assert isinstance(mig, Unknown)
    assert "MIG is on" in mig.reason


def test_a_driver_that_knows_no_mig_has_it_off(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(), lacks=["nvmlDeviceGetMigMode"])
    assert seen_gpus()[0].mig == Mig(on=False)


# By UUID


@pytest.mark.parametrize(
    "text",
    [
        "GPU-00000001-1111-2222-3333-444444444444", "00000001-1111-2222-3333-444444444444",
        "gpu-00000001-1111-2222-3333-444444444444", " 00000001-1111-2222-3333-444444444444\n",
    ],
)  # fmt: skip
def test_a_card_is_found_by_its_uuid(nvml: Any, pretend_gpus: Any, text: str) -> None:
    pretend_gpus(nvml.card(0), nvml.card(1, used=GIB))
    gpu = gpu_with_uuid(text)
    assert isinstance(gpu, SeenGpu)
    assert gpu.index == 1
    assert reading(text).used_bytes == GIB


@pytest.mark.parametrize("prefix", ["MIG-", ""])
def test_an_instance_is_found_by_its_uuid(nvml: Any, pretend_gpus: Any, prefix: str) -> None:
    pretend_gpus(nvml.cut_card(nvml.instance(3, used=MIB)))
    text = f"{prefix}00000003-5555-6666-7777-888888888888"
    gpu = gpu_with_uuid(text)
    assert isinstance(gpu, SeenGpu)
    assert gpu.total_bytes == 5 * GIB
    assert reading(text).used_bytes == MIB


def test_an_instance_of_an_old_driver_is_found(nvml: Any, pretend_gpus: Any) -> None:
    text = "MIG-GPU-00000000-1111-2222-3333-444444444444/1/0"
    pretend_gpus(nvml.cut_card(nvml.instance(uuid=text, used=MIB)))
    assert isinstance(gpu_with_uuid(text), SeenGpu)
    assert reading(text).used_bytes == MIB


def test_a_uuid_that_is_nobodys(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(0), nvml.card(1), faults={"nvmlDeviceGetHandleByIndex_v2 1": 15})
    for answer in (gpu_with_uuid("GPU-ffffffff"), read_memory("GPU-ffffffff", 1)):
        assert isinstance(answer, NoGpu)
        assert "GPU-ffffffff" in answer.reason
    asked = gpu_with_uuid("GPU-ffffffff")
    assert isinstance(asked, NoGpu)
    assert "GPU 1 does not answer: GPU is lost" in asked.reason


def test_a_reading_tells_own_bytes_from_others(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(used=4 * GIB, processes=[nvml.process(7, GIB), nvml.process(NOBODY, 2 * GIB)]))
    memory = reading(nvml.card()["uuid"], 7)
    assert (memory.total_bytes, memory.used_bytes, memory.own_bytes) == (15 * GIB, 4 * GIB, GIB)
    assert not isinstance(memory.others, Unknown)
    assert [(process.pid, process.used_bytes) for process in memory.others] == [(NOBODY, 2 * GIB)]


@pytest.mark.parametrize("listed", [[], [("other", GIB)], [("own", None)], [("own", 0)]])
def test_own_bytes_that_are_not_told_are_none(nvml: Any, pretend_gpus: Any, listed: list[tuple[str, int]]) -> None:
    entries = [nvml.process(7 if who == "own" else NOBODY, used) for who, used in listed]
    pretend_gpus(nvml.card(processes=entries))
    assert reading(nvml.card()["uuid"], 7).own_bytes is None


def test_a_card_lost_before_its_memory_was_read(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(), faults={"nvmlDeviceGetMemoryInfo_v2": 15, "nvmlDeviceGetMemoryInfo": 15})
    answer = read_memory(nvml.card()["uuid"], 1)
    assert isinstance(answer, NoGpu)
    assert "GPU is lost" in answer.reason
