"""The memory fraction and garbage collection under it, on cases worked out by hand."""

from __future__ import annotations

import pytest

from memdoctor.probes.simulated.allocator.blocks import Block, Pool
from memdoctor.probes.simulated.allocator.caching import CachingAllocator
from memdoctor.probes.simulated.allocator.oom import OutOfMemory
from memdoctor.probes.simulated.allocator.releases import to_collect
from memdoctor.probes.simulated.allocator.settings import AllocatorSettings

MIB = 1 << 20
HALF = AllocatorSettings(memory_fraction=0.5)


def fill(allocator: CachingAllocator, *requests: int) -> list[Block]:
    """Allocate each request in turn, checking the state after each."""
    blocks = []
    for nbytes in requests:
        blocks.append(allocator.malloc(nbytes))
        allocator.self_check()
    return blocks


def free(allocator: CachingAllocator, *blocks: Block) -> None:
    """Free each block in turn, checking the state after each."""
    for block in blocks:
        allocator.free(block)
        allocator.self_check()


# The memory fraction


def test_the_fraction_of_the_device_may_be_used_to_the_last_byte() -> None:
    allocator = CachingAllocator(HALF, 180 * MIB, device_bytes=200 * MIB)
    fill(allocator, 60 * MIB, 40 * MIB)
    assert (allocator.allowed, allocator.reserved) == (100 * MIB, 100 * MIB)


def test_over_the_fraction_memory_runs_out_with_some_of_the_device_free() -> None:
    allocator = CachingAllocator(HALF, 180 * MIB, device_bytes=200 * MIB)
    fill(allocator, 60 * MIB)
    with pytest.raises(OutOfMemory) as caught:
        allocator.malloc(40 * MIB + 1)
    full = caught.value
    assert (full.requested_bytes, full.segment_bytes) == (40 * MIB + 1, 42 * MIB)
    assert (full.allocated_bytes, full.reserved_bytes) == (60 * MIB, 60 * MIB)
    assert (full.free_bytes, full.allowed_bytes) == (120 * MIB, 100 * MIB)


def test_cached_segments_are_released_when_the_fraction_is_reached() -> None:
    allocator = CachingAllocator(HALF, device_bytes=200 * MIB)
    free(allocator, *fill(allocator, 60 * MIB))
    assert fill(allocator, 70 * MIB)[0].address == 60 * MIB
    assert allocator.segment_changes == [(0, 60 * MIB), (0, -60 * MIB), (60 * MIB, 70 * MIB)]


@pytest.mark.parametrize(
    ("fraction", "capacity", "device", "allowed"),
    [
        (1.0, 100, 200, None),
        (0.5, 100, 200, 100),
        (0.5, 100, None, 50),
        (0.5, None, 200, 100),
        (0.5, None, None, None),
        (0.1, None, 19, 1),  # rounded down
        (0.0, None, 200, 0),
    ],
)
def test_what_a_fraction_allows(fraction: float, capacity: int | None, device: int | None, allowed: int | None) -> None:
    settings = AllocatorSettings(memory_fraction=fraction)
    assert CachingAllocator(settings, capacity, device_bytes=device).allowed == allowed


def test_throwing_at_the_fraction_releases_nothing_first() -> None:
    settings = AllocatorSettings(memory_fraction=0.5, throw_on_cudamalloc_oom=True)
    allocator = CachingAllocator(settings, device_bytes=200 * MIB)
    free(allocator, *fill(allocator, 60 * MIB))
    with pytest.raises(OutOfMemory) as caught:
        allocator.malloc(70 * MIB)
    full = caught.value
    assert (full.allocated_bytes, full.reserved_bytes, full.free_bytes) == (0, 60 * MIB, 140 * MIB)
    assert fill(allocator, 40 * MIB)[0].address == 0  # the allocator goes on


def test_throwing_needs_a_fraction() -> None:
    allocator = CachingAllocator(AllocatorSettings(throw_on_cudamalloc_oom=True), capacity_bytes=100 * MIB)
    free(allocator, *fill(allocator, 60 * MIB))
    assert fill(allocator, 70 * MIB)[0].address == 60 * MIB


def test_expandable_segments_can_end_a_page_over_the_fraction() -> None:
    settings = AllocatorSettings(memory_fraction=0.1, expandable_segments=True)
    allocator = CachingAllocator(settings, device_bytes=100 * MIB)
    fill(allocator, 10 * MIB)  # asked about 10 MiB, which are allowed; the page has 20
    assert (allocator.allowed, allocator.reserved) == (10 * MIB, 20 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.malloc(11 * MIB)


# Garbage collection


def collecting(threshold: float, fraction: float = 0.5) -> CachingAllocator:
    """Build an allocator that may have 100 MiB."""
    settings = AllocatorSettings(memory_fraction=fraction, garbage_collection_threshold=threshold)
    return CachingAllocator(settings, 100 * MIB, device_bytes=200 * MIB)


def cached_and_aged(allocator: CachingAllocator) -> list[tuple[int, int]]:
    """Cache 30, 20 and 40 MiB, the last one later, then ask for 60 MiB, and return what that changed."""
    free(allocator, *fill(allocator, 30 * MIB, 20 * MIB))
    free(allocator, *fill(allocator, 40 * MIB))
    allocator.segment_changes.clear()
    fill(allocator, 60 * MIB)
    return allocator.segment_changes


def test_the_oldest_cached_segments_are_collected_before_a_new_one_is_asked_for() -> None:
    # 90 MiB are reserved, 50 make the threshold. 20 and 30 MiB have age 2, 40 MiB have age 1: 5/3 on average.
    assert cached_and_aged(collecting(0.5)) == [(30 * MIB, -20 * MIB), (0, -30 * MIB), (90 * MIB, 60 * MIB)]


@pytest.mark.parametrize(("threshold", "fraction"), [(0.0, 0.5), (0.5, 1.0), (0.9, 0.5)])
def test_without_threshold_or_fraction_or_below_the_threshold_all_are_released(
    threshold: float, fraction: float
) -> None:
    assert cached_and_aged(collecting(threshold, fraction)) == [
        (30 * MIB, -20 * MIB), (0, -30 * MIB), (50 * MIB, -40 * MIB), (90 * MIB, 60 * MIB),
    ]  # fmt: skip


def test_nothing_is_collected_while_a_free_block_serves() -> None:
    allocator = collecting(0.1)
    free(allocator, *fill(allocator, 30 * MIB))
    fill(allocator, 29 * MIB)
    assert allocator.segment_changes == [(0, 30 * MIB)]


def test_segments_in_use_and_the_small_pool_are_not_collected() -> None:
    allocator = collecting(0.1)
    _, small = fill(allocator, 30 * MIB, 512)
    free(allocator, small)
    fill(allocator, 20 * MIB)
    assert [delta for _, delta in allocator.segment_changes] == [30 * MIB, 2 * MIB, 20 * MIB]


def pool_of(*blocks: tuple[int, int]) -> Pool:
    """Build a pool of free segments, each with (bytes, age); the bytes are the address as well."""
    pool = Pool(small=False)
    for size, age in sorted(blocks, key=lambda block: -block[1]):
        pool.searches = 10 - age
        pool.add(Block(size, size, pool))
    pool.searches = 10
    return pool


@pytest.mark.parametrize(
    ("blocks", "target", "collected"),
    [
        ([(10, 3), (30, 1)], 10, [10]),
        ([(10, 3), (30, 1)], 11, [10, 30]),  # a second round
        ([(10, 2), (30, 2)], 1, [10, 30]),  # all of the same age go together
        ([(10, 0), (30, 0)], 1, [10, 30]),
        ([(10, 1), (20, 9), (30, 5)], 21, [20, 30]),  # averages 5 and then 3
        ([(10, 1), (20, 9), (30, 5)], 51, [20, 30, 10]),
        ([(10, 1)], 99, [10]),
        ([], 1, []),
    ],
)
def test_rounds_of_collection(blocks: list[tuple[int, int]], target: int, collected: list[int]) -> None:
    assert [block.size for block in to_collect(pool_of(*blocks), target)] == collected
