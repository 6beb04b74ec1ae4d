"""Roundings, and what each setting changes, on cases worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from memdoctor.probes.simulated.allocator.blocks import Block
from memdoctor.probes.simulated.allocator.caching import CachingAllocator
from memdoctor.probes.simulated.allocator.settings import (
    POWER2_INTERVALS,
    AllocatorSettings,
    round_size,
    segment_size,
)

KIB = 1 << 10
MIB = 1 << 20
DEFAULTS = AllocatorSettings()


def fill(allocator: CachingAllocator, *requests: int) -> list[Block]:
    """Allocate each request in turn."""
    return [allocator.malloc(nbytes) for nbytes in requests]


def free(allocator: CachingAllocator, *blocks: Block) -> None:
    """Free each block in turn, checking the state after each."""
    for block in blocks:
        allocator.free(block)
        allocator.self_check()


@pytest.mark.parametrize(
    ("nbytes", "rounded"),
    [(1, 512), (511, 512), (512, 512), (513, 1024), (1024, 1024), (MIB, MIB), (MIB + 1, MIB + 512)],
)
def test_requests_are_rounded_up_to_512_bytes(nbytes: int, rounded: int) -> None:
    assert round_size(nbytes, DEFAULTS) == rounded


@pytest.mark.parametrize(
    ("rounded", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (12 * MIB, 12 * MIB),
        (12 * MIB + 512, 14 * MIB),
    ],
)
def test_segments_are_2_mib_then_20_mib_then_a_multiple_of_2_mib(rounded: int, segment: int) -> None:
    assert segment_size(rounded, DEFAULTS) == segment


@pytest.mark.parametrize(
    ("nbytes", "rounded"),
    [
        (1200, 1536),  # not over 4 divisions of 512 bytes: the plain rule
        (2048, 2048),
        (2049, 2560),  # 2048, 2560, 3072, 3584
        (3072, 3072),
        (3073, 3584),
        (3585, 4096),
        (5 * MIB, 5 * MIB),
        (5 * MIB + 1, 6 * MIB),
        (7 * MIB + 1, 8 * MIB),
    ],
)
def test_four_divisions_between_powers_of_two(nbytes: int, rounded: int) -> None:
    settings = AllocatorSettings(roundup_power2_divisions=(4,) * POWER2_INTERVALS)
    assert round_size(nbytes, settings) == rounded


def test_each_interval_has_its_own_divisions() -> None:
    divisions = (0, 2, 1) + (8,) * (POWER2_INTERVALS - 3)
    settings = AllocatorSettings(roundup_power2_divisions=divisions)
    assert round_size(MIB + 1, settings) == MIB + 512  # below 2 MiB: none
    assert round_size(2 * MIB + 1, settings) == 3 * MIB  # 2 MiB to 4 MiB: halves
    assert round_size(4 * MIB + 1, settings) == 4 * MIB + 512  # 4 MiB to 8 MiB: 1 is none
    assert round_size(8 * MIB + 1, settings) == 9 * MIB  # and eighths from there
    assert round_size((1 << 40) + 1, settings) == (1 << 40) + (1 << 37)  # also over the last interval


def test_the_pool_is_chosen_by_the_rounded_size() -> None:
    allocator = CachingAllocator(AllocatorSettings(roundup_power2_divisions=(2,) * POWER2_INTERVALS))
    fill(allocator, 768 * KIB + 1, MIB + 1)  # with halves between powers of two: 1 MiB and 1.5 MiB
    assert [(segment.small, segment.allocated) for segment in allocator.segments] == [
        (True, MIB),
        (False, MIB + MIB // 2),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"large_segment": 10 * MIB},
        {"max_split_size": 20 * MIB - 1},
        {"max_non_split_rounding": 20 * MIB - 1},
        {"large_segment": 40 * MIB, "max_split_size": 30 * MIB},
        {"roundup_power2_divisions": (3,) * POWER2_INTERVALS},
        {"roundup_power2_divisions": (-2,) * POWER2_INTERVALS},
        {"roundup_power2_divisions": (4,)},
        {"memory_fraction": 1.01},
        {"memory_fraction": -0.01},
        {"garbage_collection_threshold": 1.0},
        {"garbage_collection_threshold": -0.01},
    ],
)
def test_settings_that_pytorch_refuses_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(reversed(wrong))):
        AllocatorSettings(**wrong)


def test_blocks_of_max_split_size_are_never_cut() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_size=24 * MIB))
    block = allocator.malloc(24 * MIB)
    free(allocator, block)
    assert allocator.malloc(23 * MIB).address == 24 * MIB  # it would have been cut
    assert allocator.malloc(24 * MIB).address == 0


def test_a_request_of_max_split_size_keeps_the_rest_of_its_block() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_size=24 * MIB))
    free(allocator, allocator.malloc(40 * MIB))
    block = allocator.malloc(24 * MIB)
    assert (block.address, block.size) == (0, 40 * MIB)


@pytest.mark.parametrize(("cached", "address"), [(44 * MIB, 44 * MIB), (42 * MIB, 0)])
def test_an_oversize_block_may_be_less_than_20_mib_too_large(cached: int, address: int) -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_size=24 * MIB))
    free(allocator, allocator.malloc(cached))
    assert allocator.malloc(24 * MIB).address == address


def test_max_non_split_rounding_moves_that_border() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_size=24 * MIB, max_non_split_rounding=21 * MIB))
    free(allocator, allocator.malloc(44 * MIB))
    assert allocator.malloc(24 * MIB).address == 0


def test_one_oversize_block_is_released_when_it_is_enough() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_size=24 * MIB), capacity_bytes=200 * MIB)
    free(allocator, *fill(allocator, 60 * MIB, 50 * MIB, 70 * MIB, 10 * MIB))
    allocator.segment_changes.clear()
    allocator.malloc(30 * MIB)  # the 50 MiB block is 20 MiB too large to serve it; the smallest that is enough goes
    assert allocator.segment_changes == [(60 * MIB, -50 * MIB), (190 * MIB, 30 * MIB)]


def test_a_block_of_just_max_split_size_is_released_first() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_size=30 * MIB), capacity_bytes=50 * MIB)
    free(allocator, *fill(allocator, 30 * MIB, 10 * MIB))
    allocator.segment_changes.clear()
    allocator.malloc(28 * MIB)
    assert allocator.segment_changes == [(0, -30 * MIB), (40 * MIB, 28 * MIB)]


def test_the_largest_oversize_blocks_are_released_when_none_is_enough() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_size=24 * MIB), capacity_bytes=200 * MIB)
    free(allocator, *fill(allocator, 60 * MIB, 50 * MIB, 70 * MIB, 10 * MIB))
    allocator.segment_changes.clear()
    allocator.malloc(120 * MIB)
    assert allocator.segment_changes == [(110 * MIB, -70 * MIB), (0, -60 * MIB), (190 * MIB, 120 * MIB)]


def test_everything_is_released_when_the_oversize_blocks_are_too_little() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_size=24 * MIB), capacity_bytes=100 * MIB)
    free(allocator, *fill(allocator, 30 * MIB, 512, 10 * MIB))
    allocator.segment_changes.clear()
    allocator.malloc(62 * MIB)  # 30 MiB would make room, but PyTorch asks for 62 MiB before it tries again
    assert allocator.segment_changes == [
        (0, -30 * MIB),
        (32 * MIB, -10 * MIB),
        (30 * MIB, -2 * MIB),
        (42 * MIB, 62 * MIB),
    ]


def test_a_larger_large_segment() -> None:
    allocator = CachingAllocator(AllocatorSettings(large_segment=32 * MIB))
    fill(allocator, 2 * MIB, 9 * MIB, 9 * MIB, 9 * MIB)
    assert allocator.reserved == 32 * MIB
