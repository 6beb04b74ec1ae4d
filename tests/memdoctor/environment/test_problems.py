"""What is wrong is found and said with what to do; where nothing is wrong, nothing is said."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.environment import Problem, find_problems
from memdoctor.probes.nvml import Absence, NoGpu
from memdoctor.probes.seen import Unknown
from memdoctor.probes.torch_build import TorchBuild

GIB = 1 << 30
MIB = 1 << 20
OWN = 7
STRANGER = 2**22 + 17  # above what Linux gives as a pid


def problems(environment: Any) -> tuple[Problem, ...]:
    """What is wrong for the process ``OWN``."""
    return find_problems(environment, OWN)


def only(environment: Any) -> str:
    """The one thing that is wrong, as one text."""
    (problem,) = problems(environment)
    assert problem.what
    assert problem.why
    assert problem.hint
    return f"{problem.what} | {problem.why} | {problem.hint}"


@pytest.fixture(autouse=True)
def everybody_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pid of these tests is looked for on this machine."""
    monkeypatch.setattr("memdoctor.probes.processes.sees_all_processes", lambda: False)


def test_a_machine_in_order_has_no_problem(environment: Any) -> None:
    assert problems(environment()) == ()


def test_the_process_itself_is_no_problem(nvml: Any, environment: Any) -> None:
    assert problems(environment(nvml.card(used=GIB, processes=[nvml.process(OWN, GIB)]))) == ()


def test_another_process_is_named_with_its_bytes(nvml: Any, environment: Any) -> None:
    card = nvml.card(used=3 * GIB, processes=[nvml.process(STRANGER, 3 * GIB)])
    said = only(environment(card, properties={"names": {str(STRANGER): "/opt/trainer"}}))
    assert f"GPU 0 is in use by trainer ({STRANGER}, unseen) 3.00 GiB" in said
    assert "3.00 GiB of 15.00 GiB" in said


def test_a_dead_process_that_holds_memory(nvml: Any, environment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memdoctor.probes.processes.sees_all_processes", lambda: True)
    said = only(environment(nvml.card(used=3 * GIB, processes=[nvml.process(STRANGER, 3 * GIB)])))
    assert "a dead process holds memory of GPU 0" in said
    assert "--gpu-reset" in said


def test_a_zombie_that_holds_memory(nvml: Any, environment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from memdoctor.probes.seen import ProcessState

    monkeypatch.setattr("memdoctor.probes.looking.look_up", lambda pid: ("python", ProcessState.ZOMBIE))
    said = only(environment(nvml.card(used=3 * GIB, processes=[nvml.process(STRANGER, 3 * GIB)])))
    assert f"a zombie holds memory of GPU 0: python ({STRANGER}, zombie) 3.00 GiB" in said
    assert "parent" in said


@pytest.mark.parametrize(("used", "wrong"), [(511 * MIB, False), (512 * MIB, True)])
def test_memory_of_nobody_who_is_listed(nvml: Any, environment: Any, used: int, wrong: bool) -> None:
    assert bool(problems(environment(nvml.card(used=used)))) == wrong
    if wrong:
        assert "512.00 MiB of GPU 0 are in use by nobody" in only(environment(nvml.card(used=used)))


def test_bytes_that_are_not_told(nvml: Any, environment: Any) -> None:
    card = nvml.card(used=3 * GIB, processes=[nvml.process(STRANGER, None)])
    in_use, untold = problems(environment(card))
    assert "bytes not told" in in_use.what
    assert "what processes hold on GPU 0 is not told" in untold.what


def test_a_list_that_is_not_told(nvml: Any, environment: Any) -> None:
    faults = {"nvmlDeviceGetComputeRunningProcesses_v3": 3}
    assert "who uses GPU 0 is not told: Not Supported" in only(environment(properties={"faults": faults}))


@pytest.mark.parametrize(("mode", "words"), [(1, "exclusive-thread"), (2, "prohibited"), (3, "exclusive-process")])
def test_compute_modes_that_keep_processes_out(nvml: Any, environment: Any, mode: int, words: str) -> None:
    said = only(environment(nvml.card(compute_mode=mode)))
    assert words in said
    assert "nvidia-smi -i 0 -c DEFAULT" in said


# MIG


def test_a_card_that_is_cut_up_is_no_problem(nvml: Any, environment: Any) -> None:
    assert problems(environment(nvml.cut_card(nvml.instance(), used=GIB))) == ()


def test_a_card_in_mig_mode_without_an_instance(nvml: Any, environment: Any) -> None:
    assert "MIG mode and has no instance" in only(environment(nvml.cut_card()))


def test_mig_without_permission_to_see_processes(nvml: Any, environment: Any) -> None:
    faults = {"nvmlDeviceGetComputeRunningProcesses_v3": 4}
    found = problems(environment(nvml.cut_card(nvml.instance()), properties={"faults": faults}))
    assert [problem.what for problem in found] == [
        "who uses GPU 0 is not told: Insufficient Permissions",
        "who uses GPU 0 MIG 0 is not told: Insufficient Permissions",
    ]
    assert "administrator" in found[0].why


def test_a_process_on_an_instance_is_told_once(nvml: Any, environment: Any) -> None:
    entry = nvml.process(STRANGER, GIB, gpu=1)
    card = nvml.cut_card(nvml.instance(used=GIB, processes=[entry]), used=GIB, processes=[entry])
    assert "GPU 0 MIG 0 is in use by" in only(environment(card))


# Builds


@pytest.mark.parametrize(
    ("cuda", "driver", "oldest"),
    [("13.0", "579.99", "580"), ("12.6", "524.1", "525"), ("12.8", "470.42.01", "525"), ("11.8", "449.9", "450")],
)
def test_a_driver_older_than_torch_needs(environment: Any, cuda: str, driver: str, oldest: str) -> None:
    built = environment(torch=TorchBuild("2.13.0", cuda, None), properties={"driver": driver, "cuda": 11040})
    said = only(built)
    assert driver in said
    assert f"driver {oldest} or newer" in said


RUNS_WITH = "memdoctor runs with torch 2.11 or newer for CUDA 12.6 or newer, which needs 525 or newer"


@pytest.mark.parametrize(
    ("cuda", "driver", "hint"),
    [
        ("13.0", "550.54", "update the driver to 580 or newer, or install a torch for CUDA 12.x"),
        ("13.0", "470.42", f"update the driver to 580 or newer; {RUNS_WITH}"),
        ("12.6", "470.42", "update the driver to 525 or newer"),
        ("11.8", "449.9", f"update the driver to 450 or newer; {RUNS_WITH}"),
        ("14.0", "580.65", "update the driver to one for CUDA 14, or install a torch for CUDA 13.x"),
    ],
)
def test_nobody_is_sent_to_a_torch_that_memdoctor_does_not_run_with(
    environment: Any, cuda: str, driver: str, hint: str
) -> None:
    built = environment(torch=TorchBuild("2.13.0", cuda, None), properties={"driver": driver, "cuda": 11040})
    (problem,) = problems(built)
    assert problem.hint == hint


def test_a_torch_for_cpus_and_a_driver_too_old_for_any_other(environment: Any) -> None:
    torch = TorchBuild("2.13.0+cpu", None, None)
    cpus, old = problems(environment(torch=torch, properties={"driver": "470.42.01", "cuda": 11040}))
    assert "CPUs only" in cpus.what
    assert old.what == "the driver is too old for any torch for CUDA: 470.42.01, which runs CUDA up to 11.4"
    assert old.hint == "update the driver to 525 or newer, for CUDA 13.x to 580 or newer"
    said = only(environment(torch=torch, properties={"driver": "525.60.13", "cuda": 12000}))
    assert "install a build for CUDA 12.x; " in said
    assert "install a build for CUDA; " in only(environment(torch=torch))


@pytest.mark.parametrize(("cuda", "driver"), [("13.0", "580.65"), ("12.8", "525.60.13"), ("11.8", "595.1")])
def test_a_driver_that_will_do(environment: Any, cuda: str, driver: str) -> None:
    assert problems(environment(torch=TorchBuild("2.13.0", cuda, None), properties={"driver": driver})) == ()


def test_a_cuda_of_the_future_is_held_against_that_of_the_driver(environment: Any) -> None:
    torch = TorchBuild("3.0.0", "14.0", None)
    assert "CUDA up to 13.0" in only(environment(torch=torch))
    assert problems(environment(torch=torch, properties={"cuda": 14000})) == ()


def test_a_driver_that_is_not_told_is_not_called_old(environment: Any) -> None:
    faults = {"nvmlSystemGetDriverVersion": 999, "nvmlSystemGetCudaDriverVersion_v2": 999}
    assert problems(environment(properties={"faults": faults})) == ()


@pytest.mark.parametrize(
    ("cuda", "capability", "wrong"),
    [
        ("13.0", [7, 0], "begin at 7.5"), ("12.8", [6, 1], "begin at 7.5"), ("13.0", [7, 5], None),
        ("12.6", [7, 0], None),
        ("12.6", [3, 7], "begin at 5.0"), ("12.6", [12, 0], "end at 9.0"), ("12.6", [9, 0], None),
        ("13.0", [12, 1], None), ("13.2", [10, 3], None), ("11.8", [3, 7], None),
    ],
)  # fmt: skip
def test_cards_that_the_wheels_have_no_code_for(
    nvml: Any, environment: Any, cuda: str, capability: list[int], wrong: str | None
) -> None:
    built = environment(nvml.card(capability=capability), torch=TorchBuild("2.13.0", cuda, None))
    if wrong is None:
        assert problems(built) == ()
    else:
        assert wrong in only(built)


@pytest.mark.parametrize(
    ("torch", "words"),
    [(TorchBuild("2.13.0+cpu", None, None), "CPUs only"), (TorchBuild("2.13.0", None, "7.1"), "ROCm 7.1")],
)
def test_a_torch_that_cannot_use_the_card(environment: Any, torch: TorchBuild, words: str) -> None:
    assert words in only(environment(torch=torch))


@pytest.mark.parametrize("torch", [None, TorchBuild("2.13.0", Unknown("it does not say"), Unknown("nor here"))])
def test_a_torch_that_is_not_known_is_not_blamed(environment: Any, torch: TorchBuild | None) -> None:
    assert problems(environment(torch=torch)) == ()


# NVML and the environment


@pytest.mark.parametrize(
    ("absence", "words"),
    [
        (Absence.NO_PYNVML, "pip install nvidia-ml-py"), (Absence.MISMATCH, "two versions"),
        (Absence.FAILED, "the reason"), (Absence.NO_DRIVER, "no driver for it"),
    ],
)  # fmt: skip
def test_nvml_that_does_not_start(environment: Any, absence: Absence, words: str) -> None:
    assert words in only(environment(gpus=NoGpu("the reason", absence), visible=None))


def test_a_machine_without_a_card_needs_no_driver(environment: Any) -> None:
    gone = NoGpu("NVML Shared Library Not Found", Absence.NO_DRIVER)
    assert problems(environment(gpus=gone, visible=None, cards_on_bus=0)) == ()


def test_a_card_that_does_not_answer(nvml: Any, environment: Any) -> None:
    faults = {"nvmlDeviceGetHandleByIndex_v2 1": 15}
    said = only(environment(nvml.card(0), nvml.card(1), properties={"faults": faults}))
    assert "GPU 1 does not answer: GPU is lost" in said
    assert "--gpu-reset" in said


def test_a_card_that_does_not_tell_enough_is_not_called_lost(nvml: Any, environment: Any) -> None:
    said = only(environment(nvml.card(0), nvml.card(1, capability=["a", "b"])))
    assert "GPU 1 does not answer: no compute capability: 'a' is no count" in said
    assert "--gpu-reset" not in said


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_a_card_that_this_user_may_not_ask(environment: Any, function: str) -> None:
    said = only(environment(properties={"faults": {function: 4}}, visible=None))
    assert "Insufficient Permissions" in said
    assert "/dev/nvidia*" in said
    assert "--gpu-reset" not in said


def test_processes_that_only_root_may_list(environment: Any) -> None:
    faults = {"nvmlDeviceGetComputeRunningProcesses_v3": 4}
    said = only(environment(properties={"faults": faults}))
    assert "root may ask" in said
    assert "--cap-add SYS_ADMIN" in said


@pytest.mark.parametrize("text", ["", "-1", "9", "0,0", "0,9", "GPU-ffff"])
def test_a_variable_that_hides_cards_or_names_none(environment: Any, text: str) -> None:
    assert f"CUDA_VISIBLE_DEVICES{'=' + text if text else ' is empty'}" in only(
        environment(variables={"CUDA_VISIBLE_DEVICES": text})
    )


@pytest.mark.parametrize("text", ["0", "GPU-00000000"])
def test_a_variable_that_names_a_card_is_no_problem(environment: Any, text: str) -> None:
    assert problems(environment(variables={"CUDA_VISIBLE_DEVICES": text})) == ()


def test_the_deprecated_distribution(environment: Any) -> None:
    assert "pynvml" in only(environment(packages={"pynvml": "11.5.0"}))


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_settings_of_the_allocator_that_pytorch_refuses(environment: Any, name: str) -> None:
    said = only(environment(variables={name: "max_split_size:64"}))
    assert name in said
    assert "max_split_size_mb" in said
    assert problems(environment(variables={name: "expandable_segments:True"})) == ()
