"""This machine's own card: the one that CUDA calls 0, with what others hold of it and the context measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memdoctor.cases import REFERENCE_GPU
from memdoctor.catalogue import find_gpu
from memdoctor.doctor import Case, open_case
from memdoctor.own_gpu import UNKNOWN_CONTEXT_BYTES, device_of_seen, own_device
from memdoctor.probes.context import Context
from memdoctor.probes.nvml import NoGpu, gpu_with_uuid
from memdoctor.probes.remembered import Setting, remember
from memdoctor.probes.seen import SeenGpu
from memdoctor.probes.torch_build import TorchBuild
from memdoctor.units import GIB, MIB

A100 = {"name": "NVIDIA A100-SXM4-40GB", "capability": [8, 0], "total": 41 * GIB}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user with an empty cache and nothing set for CUDA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(variable, raising=False)


def assumed(case: Case) -> str:
    """What was filled in, as one text."""
    return ", ".join(case.assumed)


def test_what_others_hold_counts_against_what_fits(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(used=3 * GIB))
    case = open_case("bert-base-uncased")
    assert case.device.other_processes_bytes == 3 * GIB
    assert case.device.allocator_limit_bytes == 12 * GIB - case.device.context_bytes
    assert "3.00 GiB of it in use by others" in assumed(case)


def test_a_card_to_itself_says_nothing_of_others(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card())
    case = open_case("bert-base-uncased")
    assert case.device.other_processes_bytes == 0
    assert "in use" not in assumed(case)


@pytest.mark.parametrize("asked", [{"memory": "8 GiB"}, {"gpu": "T4"}])
def test_a_card_that_was_asked_for_is_nobodys(nvml: Any, pretend_gpus: Any, asked: dict[str, str]) -> None:
    pretend_gpus(nvml.card(used=3 * GIB))
    case = open_case("bert-base-uncased", **asked)  # type: ignore[arg-type]
    assert case.device.other_processes_bytes == 0
    assert "in use" not in assumed(case)


def test_the_card_is_the_one_that_cuda_sees_first(
    nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(nvml.card(0), nvml.card(1, **A100))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-00000001")
    assert open_case("bert-base-uncased").device.name == "A100-40GB"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-00000000")
    assert open_case("bert-base-uncased").device.name == "T4"


def test_a_guess_about_the_first_is_said(nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(nvml.card(0), nvml.card(1, **A100))
    assert "FASTEST_FIRST" in assumed(open_case("bert-base-uncased"))
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert "CUDA_DEVICE_ORDER" not in assumed(open_case("bert-base-uncased"))


@pytest.mark.parametrize("text", ["", "-1", "3"])
def test_hidden_cards_leave_the_reference_card_and_say_why(
    nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    pretend_gpus(nvml.card(**A100))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    case = open_case("bert-base-uncased")
    assert case.device.name == REFERENCE_GPU
    assert "CUDA_VISIBLE_DEVICES" in assumed(case)


def test_an_instance_of_a_card_has_its_own_memory_and_name(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.cut_card(nvml.instance(used=MIB)))
    device = open_case("bert-base-uncased").device
    assert (device.name, device.total_bytes) == ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 5 * GIB)
    assert (device.compute_capability, device.other_processes_bytes) == ("8.0", MIB)


def seen_t4(nvml: Any, pretend_gpus: Any) -> SeenGpu:
    """The T4 of a machine with one."""
    pretend_gpus(nvml.card())
    seen = gpu_with_uuid(nvml.card()["uuid"])
    assert isinstance(seen, SeenGpu)
    return seen


def test_a_context_that_was_measured_here_comes_before_the_catalogue(
    nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("memdoctor.probes.remembered.torch_build", lambda: TorchBuild("2.13.0+cu130", "13.0", None))
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    seen, known = seen_t4(nvml, pretend_gpus), find_gpu("T4")
    assert known is not None
    assert device_of_seen(seen, environ).context_bytes == known.context_bytes
    context = Context(111 * MIB, 2 * MIB, "measured: process bytes by pid less reserved")
    remember(Setting("Tesla T4", "580.65.06", "13.0", "2.13.0+cu130"), context, environ)
    device = device_of_seen(seen, environ)
    assert (device.context_bytes, device.context_error_bytes) == (111 * MIB, 2 * MIB)
    assert device.context_source == context.source


@pytest.mark.parametrize("build", [None, TorchBuild("2.13.0+cpu", None, None)])
def test_a_torch_without_cuda_has_measured_nothing(
    nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, build: TorchBuild | None
) -> None:
    monkeypatch.setattr("memdoctor.probes.remembered.torch_build", lambda: build)
    environ, known = {"XDG_CACHE_HOME": str(tmp_path)}, find_gpu("T4")
    remember(Setting("Tesla T4", "580.65.06", "13.0", "2.13.0"), Context(1, 1, "measured"), environ)
    assert known is not None
    assert device_of_seen(seen_t4(nvml, pretend_gpus), environ).context_bytes == known.context_bytes


def test_a_context_larger_than_the_card_is_not_believed(
    nvml: Any, pretend_gpus: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("memdoctor.probes.remembered.torch_build", lambda: TorchBuild("2.13.0", "13.0", None))
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    remember(Setting("Tesla T4", "580.65.06", "13.0", "2.13.0"), Context(99 * GIB, 1, "measured"), environ)
    assert device_of_seen(seen_t4(nvml, pretend_gpus), environ).context_bytes < GIB


def test_a_card_that_no_catalogue_knows_has_an_estimated_context(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(name="NVIDIA RTX 9999", capability=[8, 9]))
    own = own_device({})
    assert not isinstance(own, NoGpu)
    device, _ = own
    assert (device.name, device.compute_capability) == ("NVIDIA RTX 9999", "8.9")
    assert device.context_bytes == UNKNOWN_CONTEXT_BYTES
    assert device.context_source.startswith("estimate")
