"""The allocator's rules one by one, on cases worked out by hand."""

from __future__ import annotations

import pytest

from memdoctor.probes.simulated.allocator.blocks import Block
from memdoctor.probes.simulated.allocator.caching import CachingAllocator
from memdoctor.probes.simulated.allocator.oom import OutOfMemory
from memdoctor.probes.simulated.allocator.segments import LiveBlock, Segment

KIB = 1 << 10
MIB = 1 << 20


def fill(allocator: CachingAllocator, *requests: int) -> list[Block]:
    """Allocate each request in turn."""
    return [allocator.malloc(nbytes) for nbytes in requests]


def free(allocator: CachingAllocator, *blocks: Block) -> None:
    """Free each block in turn, checking the state after each."""
    for block in blocks:
        allocator.free(block)
        allocator.self_check()


@pytest.mark.parametrize("nbytes", [0, -1])
def test_requests_of_nothing_never_reach_the_allocator(nbytes: int) -> None:
    with pytest.raises(ValueError, match="more than 0 bytes"):
        CachingAllocator().malloc(nbytes)


# Pools


def test_1_mib_is_the_largest_small_request() -> None:
    allocator = CachingAllocator()
    fill(allocator, MIB, MIB + 1)
    assert allocator.segments == (
        Segment(0, 2 * MIB, small=True, allocated=MIB),
        Segment(2 * MIB, 20 * MIB, small=False, allocated=MIB + 512),
    )
    assert (allocator.allocated, allocator.reserved) == (2 * MIB + 512, 22 * MIB)


def test_a_small_request_does_not_use_the_large_pool() -> None:
    allocator = CachingAllocator()
    free(allocator, *fill(allocator, 2 * MIB))
    assert fill(allocator, 512)[0].address == 20 * MIB
    assert allocator.reserved == 22 * MIB


# Splitting


def test_small_blocks_are_cut_down_to_a_rest_of_512_bytes() -> None:
    allocator = CachingAllocator()
    blocks = fill(allocator, MIB, MIB - 512, 512)
    assert [block.address for block in blocks] == [0, MIB, 2 * MIB - 512]
    assert allocator.allocated == allocator.reserved == 2 * MIB


def test_a_large_rest_of_more_than_1_mib_is_split_off() -> None:
    allocator = CachingAllocator()
    blocks = fill(allocator, 9 * MIB, 10 * MIB - 512)  # of a segment of 20 MiB
    assert [block.size for block in blocks] == [9 * MIB, 10 * MIB - 512]
    assert allocator.largest_free_block == MIB + 512


def test_a_large_rest_of_exactly_1_mib_stays_and_counts_as_allocated() -> None:
    allocator = CachingAllocator()
    block = allocator.malloc(13 * MIB)  # its segment is 14 MiB
    assert (block.size, block.requested, allocator.allocated) == (14 * MIB, 13 * MIB, 14 * MIB)
    assert allocator.largest_free_block == 0
    assert CachingAllocator().malloc(13 * MIB - 512).size == 13 * MIB - 512  # one step less: 1 MiB + 512 is split off


def test_freeing_gives_the_unsplit_rest_back_as_well() -> None:
    allocator = CachingAllocator()
    free(allocator, allocator.malloc(13 * MIB))
    assert (allocator.allocated, allocator.largest_free_block, allocator.releasable) == (0, 14 * MIB, 14 * MIB)


# Best fit


def test_the_smallest_block_that_is_large_enough_is_taken() -> None:
    allocator = CachingAllocator()
    wide, _, narrow, _ = fill(allocator, 8 * KIB, 512, 4 * KIB, 512)
    free(allocator, wide, narrow)
    assert allocator.malloc(3 * KIB).address == 8 * KIB + 512
    assert allocator.malloc(5 * KIB).address == 0


def test_a_block_that_fits_exactly_is_preferred() -> None:
    allocator = CachingAllocator()
    near, _, exact, _ = fill(allocator, 4 * KIB + 512, 512, 4 * KIB, 512)
    free(allocator, near, exact)
    assert allocator.malloc(4 * KIB).address == exact.address == 5 * KIB


def test_the_lowest_address_is_taken_among_equals() -> None:
    allocator = CachingAllocator()
    first, _, second, _, third, _ = fill(allocator, 4 * KIB, 512, 4 * KIB, 512, 4 * KIB, 512)
    free(allocator, third, first, second)
    assert [allocator.malloc(4 * KIB).address for _ in range(3)] == [0, 4 * KIB + 512, 9 * KIB]


def test_equal_blocks_are_ordered_by_address_not_by_age_of_the_segment() -> None:
    places = iter([64 * MIB, 32 * MIB])
    allocator = CachingAllocator(place_segment=lambda _size: next(places))
    older, younger = fill(allocator, 10 * MIB, 10 * MIB)
    assert (older.address, younger.address) == (64 * MIB, 32 * MIB)
    free(allocator, older, younger)
    assert allocator.malloc(10 * MIB).address == 32 * MIB


def test_two_segments_cannot_lie_at_one_address() -> None:
    allocator = CachingAllocator(place_segment=lambda _size: 0)
    fill(allocator, 10 * MIB)
    with pytest.raises(ValueError, match="there is a segment at 0 already"):
        allocator.malloc(10 * MIB)


# Coalescing


def test_a_freed_block_grows_together_with_both_neighbours() -> None:
    allocator = CachingAllocator()
    left, middle, right, _ = fill(allocator, 4 * KIB, 4 * KIB, 4 * KIB, 512)
    free(allocator, left, right, middle)
    assert allocator.malloc(12 * KIB).address == 0
    assert allocator.largest_free_block == 2 * MIB - 12 * KIB - 512


def test_what_is_left_of_a_hole_grows_together_with_the_block_behind_it() -> None:
    allocator = CachingAllocator()
    hole, behind, _ = fill(allocator, 4 * KIB, 4 * KIB, 512)
    free(allocator, hole)
    assert allocator.malloc(KIB).address == 0
    free(allocator, behind)
    assert allocator.malloc(7 * KIB).address == KIB


def test_blocks_of_neighbouring_segments_stay_apart() -> None:
    allocator = CachingAllocator()
    free(allocator, *fill(allocator, 10 * MIB, 10 * MIB))
    assert (allocator.reserved, allocator.largest_free_block) == (20 * MIB, 10 * MIB)
    assert allocator.malloc(12 * MIB).address == 20 * MIB


def test_freeing_twice_is_refused() -> None:
    allocator = CachingAllocator()
    left, right = fill(allocator, 512, 512)
    free(allocator, left, right)
    with pytest.raises(ValueError, match="free already"):
        allocator.free(right)


# Releasing, capacity, running out


def test_emptying_the_cache_releases_only_what_is_wholly_free() -> None:
    allocator = CachingAllocator()
    kept, gone, small, large = fill(allocator, 2 * MIB, 2 * MIB, 512, 17 * MIB)
    free(allocator, gone, small, large)
    assert (allocator.releasable, allocator.stranded) == (20 * MIB, 18 * MIB)
    allocator.segment_changes.clear()
    allocator.empty_cache()
    allocator.self_check()
    assert allocator.segment_changes == [(22 * MIB, -18 * MIB), (20 * MIB, -2 * MIB)]
    assert (kept.address, allocator.reserved, allocator.releasable) == (0, 20 * MIB, 0)
    assert allocator.malloc(17 * MIB).address == 2 * MIB


def test_a_segment_in_use_at_its_end_is_not_released() -> None:
    allocator = CachingAllocator()
    front, _ = fill(allocator, 2 * MIB, 17 * MIB + 512)  # the rest of 1 MiB - 512 stays in the second
    free(allocator, front)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.largest_free_block, allocator.stranded) == (20 * MIB, 2 * MIB, 2 * MIB)


def test_capacity_may_be_used_to_the_last_byte() -> None:
    allocator = CachingAllocator(capacity_bytes=22 * MIB)
    fill(allocator, 10 * MIB, 12 * MIB)
    assert allocator.reserved == 22 * MIB


def test_cached_segments_are_released_before_giving_up() -> None:
    allocator = CachingAllocator(capacity_bytes=30 * MIB)
    free(allocator, *fill(allocator, 10 * MIB, 12 * MIB))
    allocator.segment_changes.clear()
    assert allocator.malloc(30 * MIB).address == 22 * MIB
    assert allocator.segment_changes == [(0, -10 * MIB), (10 * MIB, -12 * MIB), (22 * MIB, 30 * MIB)]


def test_running_out_tells_the_request_the_segment_and_what_is_free() -> None:
    allocator = CachingAllocator(capacity_bytes=40 * MIB)
    fill(allocator, 2 * MIB)
    free(allocator, allocator.malloc(19 * MIB))
    with pytest.raises(OutOfMemory) as caught:
        allocator.malloc(20 * MIB + 1)
    full = caught.value
    assert (full.requested_bytes, full.segment_bytes, full.free_bytes) == (20 * MIB + 1, 22 * MIB, 20 * MIB)
    assert (full.allocated_bytes, full.reserved_bytes, full.allowed_bytes) == (2 * MIB, 20 * MIB, None)
    assert (allocator.reserved, allocator.allocated) == (20 * MIB, 2 * MIB)
    allocator.self_check()


# Adopting a state


def test_an_adopted_segment_is_free_between_its_live_blocks() -> None:
    allocator = CachingAllocator()
    live = [LiveBlock(1000 * MIB + 2 * MIB, 3 * MIB, 3 * MIB), LiveBlock(1000 * MIB + 5 * MIB, 2 * MIB, 2 * MIB - 7)]
    blocks = allocator.adopt(1000 * MIB, 20 * MIB, small=False, live=live)
    allocator.self_check()
    assert [(block.address, block.size, block.requested) for block in blocks] == [
        (1002 * MIB, 3 * MIB, 3 * MIB),
        (1005 * MIB, 2 * MIB, 2 * MIB - 7),
    ]
    assert (allocator.allocated, allocator.reserved, allocator.segment_changes) == (5 * MIB, 20 * MIB, [])
    assert [allocator.malloc(2 * MIB).address for _ in range(2)] == [1000 * MIB, 1007 * MIB]
    free(allocator, *blocks)


@pytest.mark.parametrize(
    "live",
    [
        [LiveBlock(0, 512, 513)],
        [LiveBlock(0, 512, 0)],
        [LiveBlock(512, 512, 512), LiveBlock(0, 1024, 1024)],
        [LiveBlock(2 * MIB - 512, 1024, 1024)],
    ],
)
def test_an_impossible_state_is_not_adopted(live: list[LiveBlock]) -> None:
    allocator = CachingAllocator()
    with pytest.raises(ValueError, match="block"):
        allocator.adopt(0, 2 * MIB, small=True, live=live)
    assert allocator.segments == ()
