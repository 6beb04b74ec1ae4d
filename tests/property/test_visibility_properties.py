"""CUDA_VISIBLE_DEVICES is read as the installed torch reads it."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from memdoctor.probes.seen import ComputeMode, Mig, SeenGpu, Survey
from memdoctor.probes.visibility import as_cuda_numbers

UUIDS = ("GPU-0a000000-1", "GPU-0b000000-2", "GPU-0b000000-3", "GPU-0c000000-4")


def card(index: int) -> SeenGpu:
    """One of four cards of one kind, in the order of the bus."""
    return SeenGpu(
        index=index, uuid=UUIDS[index], pci_bus_id=f"00000000:0{index}:00.0", name="Tesla T4", total_bytes=1,
        used_bytes=0, driver_keeps_bytes=0, compute_capability="7.5", processes=(), compute_mode=ComputeMode.DEFAULT,
        mig=Mig(on=False),
    )  # fmt: skip


SEEN = Survey(tuple(map(card, range(len(UUIDS)))), (), "580.65.06", "13.0")
NUMBERS = st.sampled_from(["0", "1", "2", "3", "4", "17", "-1", "-0", "+2", " 1", "2 ", "1gpu2", "", "x", "0x1", "01"])
NAMES = st.sampled_from([*UUIDS, "GPU-0a", "GPU-0b", "GPU-0c0", "GPU-", "GPU-f", " GPU-0a", "gpu-0a", "MIG-0a"])
LISTS = st.lists(st.one_of(NUMBERS, NAMES), max_size=5).map(",".join)


def as_torch_reads(torch: Any, text: str) -> list[int]:
    """The cards that torch counts, by the functions that ``torch.cuda.device_count`` uses."""
    with patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": text}):
        named = torch.cuda._parse_visible_devices()
    if named and isinstance(named[0], str):
        ordinals: list[int] = torch.cuda._transform_uuid_to_ordinals(named, list(UUIDS))
        return ordinals
    known = next((place for place, number in enumerate(named) if number >= len(UUIDS)), len(named))
    return list(named[:known])


@given(LISTS)
def test_the_variable_is_read_as_torch_reads_it(text: str) -> None:
    torch = pytest.importorskip("torch")
    seen = as_cuda_numbers(SEEN, {"CUDA_VISIBLE_DEVICES": text})
    assert [gpu.index for gpu in seen.gpus] == as_torch_reads(torch, text)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    seen = as_cuda_numbers(SEEN, {"CUDA_VISIBLE_DEVICES": text})
    assert len({gpu.uuid for gpu in seen.gpus}) == len(seen.gpus)
    assert seen.gpus or seen.notes
