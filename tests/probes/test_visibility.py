"""Which card CUDA calls 0: the order, the variable and MIG, and what of it is a guess."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.probes.nvml import NoGpu, SeenGpu, Survey, survey, visible_gpus
from memdoctor.probes.seen import Absence
from memdoctor.probes.visibility import Visible, as_cuda_numbers

GIB = 1 << 30
A100 = {"name": "NVIDIA A100-SXM4-40GB", "capability": [8, 0], "total": 40 * GIB}


@pytest.fixture
def visible(pretend_gpus: Any) -> Any:
    """What CUDA would see on a machine with these cards, in this environment."""

    def look(*cards: dict[str, Any], **environ: str) -> Visible:
        pretend_gpus(*cards)
        seen = survey()
        assert isinstance(seen, Survey)
        return as_cuda_numbers(seen, environ)

    return look


def indices(seen: Visible) -> list[int]:
    """NVML's numbers of the cards, in CUDA's order."""
    return [gpu.index for gpu in seen.gpus]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0", [0]), ("2,1", [2, 1]), ("0,2,-1,1", [0, 2]), ("0,9,1", [0]), ("", []), ("-1", []), (" 1 , 0 ", [1, 0]),
        ("NoDevFiles", []), ("1gpu2,2ampere", [1, 2]), ("0,0", []), ("1,0,1", []), ("0,-1,0", [0]), ("0,9,9", []),
        ("0,", [0]), ("+1", [1]), ("3", []), ("all", []), ("0 1", [0]), ("0,GPU-00000001", [0]), ("0;1", [0]),
        ("GPU-00000001", [1]), ("GPU-00000002-1111-2222-3333-444444444444,GPU-00000000", [2, 0]), ("GPU-", []),
        ("GPU-0", []), ("GPU-00000001,1", [1]), ("GPU-00000001,GPU-00000001", []), ("GPU-00000001, GPU-00000002", [1]),
        ("GPU-00000001,GPU-00000001-1", []), ("GPU-7,GPU-00000001", []), ("MIG-00000000", []),
    ],
)  # fmt: skip
def test_the_variable_names_cards_and_their_order(nvml: Any, visible: Any, text: str, shown: list[int]) -> None:
    seen = visible(*(nvml.card(number) for number in range(3)), CUDA_VISIBLE_DEVICES=text)
    assert indices(seen) == shown
    assert seen.certain
    assert bool(seen.notes) == (len(shown) < len(text.split(","))), seen.notes
    assert all("CUDA_VISIBLE_DEVICES" in note for note in seen.notes)


def test_without_the_variable_all_are_seen(nvml: Any, visible: Any) -> None:
    seen = visible(*(nvml.card(number) for number in range(3)))
    assert (indices(seen), seen.certain, seen.notes) == ([0, 1, 2], True, ())


def test_the_fastest_of_different_cards_is_a_guess(nvml: Any, visible: Any) -> None:
    cards = (nvml.card(0), nvml.card(1, **A100))
    seen = visible(*cards)
    assert (indices(seen), seen.certain) == ([1, 0], False)
    assert "FASTEST_FIRST" in seen.notes[0]
    assert indices(visible(*cards, CUDA_VISIBLE_DEVICES="0")) == [1]
    assert not visible(*cards, CUDA_VISIBLE_DEVICES="0").certain


@pytest.mark.parametrize("order", ["PCI_BUS_ID", "FASTEST_FIRST"])
def test_a_card_that_is_named_by_its_uuid_is_certain(nvml: Any, visible: Any, order: str) -> None:
    cards = (nvml.card(0), nvml.card(1, **A100))
    seen = visible(*cards, CUDA_VISIBLE_DEVICES="GPU-00000000", CUDA_DEVICE_ORDER=order)
    assert (indices(seen), seen.certain, seen.notes) == ([0], True, ())


def test_the_order_of_the_bus_is_certain(nvml: Any, visible: Any) -> None:
    cards = (nvml.card(0, bus="00000000:AF:00.0"), nvml.card(1, bus="00000000:3B:00.0", **A100))
    seen = visible(*cards, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert (indices(seen), seen.certain) == ([1, 0], True)
    assert indices(visible(*cards, CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES="1")) == [0]


def test_a_bus_that_is_not_told_is_no_certainty(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(0), nvml.card(1), faults={"nvmlDeviceGetPciInfo_v3": 3})
    seen = survey()
    assert isinstance(seen, Survey)
    assert not as_cuda_numbers(seen, {}).certain


def test_a_card_that_does_not_answer_is_no_certainty(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(0), nvml.card(1), faults={"nvmlDeviceGetHandleByIndex_v2 0": 15})
    seen = survey()
    assert isinstance(seen, Survey)
    assert (indices(as_cuda_numbers(seen, {})), as_cuda_numbers(seen, {}).certain) == ([1], False)
    assert as_cuda_numbers(seen, {"CUDA_VISIBLE_DEVICES": "GPU-00000001"}).certain


# MIG


def uuids(seen: Visible) -> list[str]:
    """The beginnings of the UUIDs of what CUDA sees."""
    return [gpu.uuid[:12] for gpu in seen.gpus]


def test_of_a_card_that_is_cut_up_cuda_sees_one_instance(nvml: Any, visible: Any) -> None:
    seen = visible(nvml.cut_card(nvml.instance(0)))
    assert (uuids(seen), seen.certain) == (["MIG-00000000"], True)
    seen = visible(nvml.cut_card(nvml.instance(0), nvml.instance(1)))
    assert (uuids(seen), seen.certain) == (["MIG-00000000"], False)
    assert "one MIG instance" in seen.notes[0]


def test_beside_an_instance_no_whole_card_is_seen(nvml: Any, visible: Any) -> None:
    cards = (nvml.card(0, **A100), nvml.cut_card(nvml.instance(0), number=1))
    assert uuids(visible(*cards)) == ["MIG-00000000"]
    assert uuids(visible(*cards, CUDA_VISIBLE_DEVICES="0")) == ["GPU-00000000"]
    assert uuids(visible(*cards, CUDA_VISIBLE_DEVICES="1")) == ["MIG-00000000"]


def test_an_instance_is_named_by_its_uuid(nvml: Any, visible: Any) -> None:
    card = nvml.cut_card(nvml.instance(0), nvml.instance(1))
    seen = visible(card, CUDA_VISIBLE_DEVICES="MIG-00000001-5555-6666-7777-888888888888")
    assert (uuids(seen), seen.certain) == (["MIG-00000001"], True)
    assert uuids(visible(card, CUDA_VISIBLE_DEVICES="MIG-00000001,MIG-00000000")) == ["MIG-00000001"]


def test_a_card_that_is_cut_up_into_nothing_is_not_seen(nvml: Any, visible: Any) -> None:
    seen = visible(nvml.cut_card(), nvml.card(1))
    assert uuids(seen) == ["GPU-00000001"]
    assert any("no instance" in note for note in seen.notes)


# The door


def test_the_cards_in_cudas_order(nvml: Any, pretend_gpus: Any) -> None:
    pretend_gpus(nvml.card(0), nvml.card(1, **A100))
    seen = visible_gpus({"CUDA_VISIBLE_DEVICES": "1,0"})
    assert not isinstance(seen, NoGpu)
    assert [gpu.index for gpu in seen] == [0, 1]
    assert all(isinstance(gpu, SeenGpu) for gpu in seen)


@pytest.mark.parametrize("text", ["", "-1", "7", "0,0"])
def test_hidden_cards_are_a_reason(nvml: Any, pretend_gpus: Any, text: str) -> None:
    pretend_gpus(nvml.card())
    seen = visible_gpus({"CUDA_VISIBLE_DEVICES": text})
    assert isinstance(seen, NoGpu)
    assert seen.absence is Absence.HIDDEN
    assert "CUDA_VISIBLE_DEVICES" in seen.reason


def test_without_cards_the_variable_is_not_to_blame(pretend_gpus: Any) -> None:
    pretend_gpus()
    seen = visible_gpus({"CUDA_VISIBLE_DEVICES": ""})
    assert isinstance(seen, NoGpu)
    assert seen.absence is Absence.NO_CARD
