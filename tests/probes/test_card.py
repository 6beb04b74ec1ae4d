"""The card as CUDA and NVML see it, both pretended: which of NVML's devices it is, and who holds what."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from memdoctor.probes.card import Card, device_of, held_on, open_card
from memdoctor.probes.nvml import MemoryReading, NoGpu
from memdoctor.probes.remembered import remembered
from memdoctor.records import Device

MIB, GIB = 1 << 20, 1 << 30
Pretend = Callable[..., ModuleType]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Callable[..., None]:
    """Let CUDA have a device of this name and UUID, of which so much is free."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def pretend(name: str, uuid: str, *, total: int = 15 * GIB, free: int = 14 * GIB) -> None:
        properties = SimpleNamespace(name=name, uuid=uuid, major=7, minor=5)
        monkeypatch.setattr("memdoctor.probes.card.require_cuda", lambda: None)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, total))
        monkeypatch.setattr(torch.version, "cuda", "13.0")

    return pretend


def bare(uuid: str) -> str:
    """As torch has it."""
    return uuid.partition("-")[2]


def test_the_card_is_found_by_its_uuid_not_by_its_number(cuda: Any, pretend_gpus: Pretend, nvml: Any) -> None:
    first, second = nvml.card(0, used=7 * GIB), nvml.card(1, used=GIB)
    pretend_gpus(first, second)
    cuda("Tesla T4", bare(second["uuid"]))
    card = open_card()
    assert isinstance(card.before, MemoryReading)
    assert card.before.used_bytes == GIB
    assert (card.name, card.total_bytes, card.compute_capability) == ("Tesla T4", 15 * GIB, "7.5")
    assert (card.cuda, card.driver) == ("13.0", "580.65.06")


@pytest.mark.parametrize("prefix", ["", "MIG-"])
def test_an_instance_of_a_card_that_is_cut_up_is_one_of_nvmls(
    cuda: Any, pretend_gpus: Pretend, nvml: Any, prefix: str
) -> None:
    own = nvml.process(os.getpid(), 900 * MIB)
    instance = nvml.instance(1, used=900 * MIB, processes=[own])
    pretend_gpus(nvml.cut_card(nvml.instance(0), instance))
    cuda("NVIDIA A100-SXM4-40GB MIG 1g.5gb", prefix + bare(instance["uuid"]), total=5 * GIB)
    card = open_card()
    assert isinstance(card.before, MemoryReading)
    held = held_on(card, 500 * MIB)
    assert held.context is not None
    assert held.context.context_bytes == 400 * MIB
    assert (held.process_bytes, held.listed_bytes, held.others_bytes) == (900 * MIB, 0, 0)


def test_a_measured_context_is_kept_each_time(cuda: Any, pretend_gpus: Pretend, nvml: Any) -> None:
    for context in (400, 450):
        own = nvml.process(os.getpid(), (context + 100) * MIB)
        seen = nvml.card(used=(context + 100) * MIB, processes=[own])
        pretend_gpus(seen)
        cuda("Tesla T4", bare(seen["uuid"]))
        held_on(open_card(), 100 * MIB)
        (kept,) = remembered()
        assert kept.context.context_bytes == context * MIB
        assert (kept.setting.gpu, kept.setting.cuda, kept.setting.torch) == ("Tesla T4", "13.0", torch.__version__)


def test_what_others_hold_is_told_with_and_without_a_list(cuda: Any, pretend_gpus: Pretend, nvml: Any) -> None:
    own, other = nvml.process(os.getpid(), 500 * MIB), nvml.process(4242, 300 * MIB)
    seen = nvml.card(used=900 * MIB, processes=[own, other])
    pretend_gpus(seen)
    cuda("Tesla T4", bare(seen["uuid"]))
    held = held_on(open_card(), 100 * MIB)
    assert (held.listed_bytes, held.others_bytes) == (300 * MIB, 400 * MIB)  # 100 MiB of it nobody's on the list


def without_nvml(used: int) -> Card:
    gone = NoGpu("NVML cannot start: driver not loaded")
    return Card("T4", 15 * GIB, "7.5", "GPU-1", "13.0", "", gone, lambda: gone, lambda: used)


def test_without_nvml_what_is_in_use_is_one_figure() -> None:
    held = held_on(without_nvml(600 * MIB), 100 * MIB)
    assert held.context is not None
    assert held.context.context_bytes == 500 * MIB
    assert (held.process_bytes, held.listed_bytes, held.used_bytes) == (None, None, 600 * MIB)


def test_a_figure_that_cannot_be_is_no_context() -> None:
    held = held_on(without_nvml(100 * MIB), 100 * MIB)
    assert held.context is None
    assert held.others_bytes is None
    assert "driver not loaded" in held.notes[0]


def test_what_others_hold_is_kept_where_the_context_cannot_be_told() -> None:
    """In a container, and others gave back more than this process took: as was known before, not nothing."""
    before, after = (MemoryReading(24 * GIB, used * GIB, None, ()) for used in (23, 22))
    card = replace(without_nvml(22 * GIB), before=before, read=lambda: after)
    held = held_on(card, 2 * GIB)
    assert (held.context, held.others_bytes) == (None, None)
    asked = Device(
        name="T4", total_bytes=24 * GIB, compute_capability="7.5", context_bytes=GIB, context_error_bytes=0,
        context_source="catalogue", source="catalogue", other_processes_bytes=20 * GIB,
    )  # fmt: skip
    assert device_of(card, held, asked).other_processes_bytes == 20 * GIB
    assert device_of(card, held, asked).context_bytes == GIB
