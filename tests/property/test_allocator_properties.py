"""What holds for every history of allocations: the blocks tile, the sums agree, nothing is lost."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hypothesis import given, settings, strategies as st

from memdoctor.probes.simulated.allocator.blocks import Block
from memdoctor.probes.simulated.allocator.caching import CachingAllocator
from memdoctor.probes.simulated.allocator.oom import OutOfMemory
from memdoctor.probes.simulated.allocator.replay import replay
from memdoctor.probes.simulated.allocator.settings import POWER2_INTERVALS, AllocatorSettings, round_size
from memdoctor.records import Event

MIB = 1 << 20

SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, 3 * MIB),
    st.integers(1, 40 * MIB),
    st.builds(lambda base, offset: base + offset, st.sampled_from([MIB, 10 * MIB, 20 * MIB]), st.integers(-600, 600)),
)
# A step allocates that many bytes, or frees the live block of that index (from the end, wrapped).
STEPS = st.lists(st.one_of(SIZES, SIZES, st.integers(-20, -1)), max_size=60)
SETTINGS = st.builds(
    AllocatorSettings,
    large_segment=st.sampled_from([12 * MIB, 20 * MIB]),
    max_split_size=st.sampled_from([None, 20 * MIB, 24 * MIB]),
    max_non_split_rounding=st.sampled_from([None, 30 * MIB]),
    roundup_power2_divisions=st.sampled_from([(0,) * POWER2_INTERVALS, (4,) * POWER2_INTERVALS]),
    expandable_segments=st.booleans(),
    memory_fraction=st.sampled_from([1.0, 0.5, 0.9]),
    garbage_collection_threshold=st.sampled_from([0.0, 0.4]),
    throw_on_cudamalloc_oom=st.booleans(),
)
CAPACITIES = st.one_of(st.none(), st.integers(1, 120).map(lambda number: number * MIB))


def run(allocator: CachingAllocator, steps: list[int], check: bool = False) -> list[Block]:
    """Take the steps, stop when memory runs out, and return the live blocks, oldest first."""
    live: list[Block] = []
    for step in steps:
        if step < 0:
            if live:
                allocator.free(live.pop(step % len(live)))
        else:
            try:
                live.append(allocator.malloc(step))
            except OutOfMemory:
                break
        if check:
            allocator.self_check()
    return live


def events_of(steps: list[int]) -> list[Event]:
    """Write the steps as events."""
    live: list[Event] = []
    events = []
    for number, step in enumerate(steps):
        if step >= 0:
            live.append(Event(number, step))
            events.append(live[-1])
        elif live:
            born = live.pop(step % len(live))
            events.append(Event(born.block, -born.delta_bytes))
    return events


@settings(max_examples=100, deadline=None)
@given(SETTINGS, CAPACITIES, STEPS)
def test_blocks_tile_their_segments_after_every_step(
    policy: AllocatorSettings, capacity: int | None, steps: list[int]
) -> None:
    run(CachingAllocator(policy, capacity), steps, check=True)


@settings(max_examples=100, deadline=None)
@given(SETTINGS, CAPACITIES, STEPS)
def test_live_blocks_are_apart_and_hold_what_was_asked(
    policy: AllocatorSettings, capacity: int | None, steps: list[int]
) -> None:
    allocator = CachingAllocator(policy, capacity)
    live = sorted(run(allocator, steps), key=lambda block: block.address)
    assert all(one.address + one.size <= other.address for one, other in pairwise(live))
    assert all(block.requested <= round_size(block.requested, policy) <= block.size for block in live)
    assert sum(round_size(block.requested, policy) for block in live) <= allocator.allocated <= allocator.reserved
    assert allocator.allocated == sum(block.size for block in live)


@settings(max_examples=100, deadline=None)
@given(SETTINGS, CAPACITIES, STEPS)
def test_capacity_is_never_exceeded(policy: AllocatorSettings, capacity: int | None, steps: list[int]) -> None:
    result = replay(events_of(steps), policy, capacity)
    assert all(a <= r for a, r in zip(result.allocated, result.reserved, strict=True))
    assert capacity is None or result.peak_reserved <= capacity
    assert (result.ran_out is None) == (len(result.addresses) == len(events_of(steps)))
    full = result.ran_out
    if full is not None:
        held = sum(segment.size for segment in result.segments)
        assert capacity is not None
        assert (full.free_bytes, full.reserved_bytes) == (capacity - held, held)
        assert full.allocated_bytes == sum(segment.allocated for segment in result.segments) <= held
        over = full.allowed_bytes is not None and held + full.segment_bytes > full.allowed_bytes
        assert over or policy.expandable_segments or full.segment_bytes > full.free_bytes
        assert result.releasable == 0 or policy.throw_on_cudamalloc_oom


@settings(max_examples=100, deadline=None)
@given(SETTINGS, CAPACITIES, STEPS)
def test_a_fraction_is_exceeded_by_less_than_a_page(
    policy: AllocatorSettings, capacity: int | None, steps: list[int]
) -> None:
    allocator = CachingAllocator(policy, capacity)
    run(allocator, steps)
    page = policy.large_segment if policy.expandable_segments else 0
    assert allocator.allowed is None or allocator.peak_reserved <= allocator.allowed + page


@settings(max_examples=100, deadline=None)
@given(SETTINGS, STEPS)
def test_everything_freed_leaves_whole_free_segments(policy: AllocatorSettings, steps: list[int]) -> None:
    allocator = CachingAllocator(policy)
    for block in run(allocator, steps):
        allocator.free(block)
    allocator.self_check()
    assert allocator.allocated == allocator.stranded == 0
    assert allocator.releasable == allocator.reserved
    allocator.empty_cache()
    assert (allocator.reserved, allocator.segments) == (0, ())


@settings(max_examples=100, deadline=None)
@given(STEPS, SIZES)
def test_a_block_freed_and_asked_for_again_comes_back(steps: list[int], size: int) -> None:
    # Not under max_split_size: there a segment that was just got can be too large for the request that got it.
    allocator = CachingAllocator()
    run(allocator, steps)
    block = allocator.malloc(size)
    address, extent = block.address, block.size
    before = allocator.segments
    allocator.free(block)
    again = allocator.malloc(size)
    assert (again.address, again.size, allocator.segments) == (address, extent, before)


@settings(max_examples=50, deadline=None)
@given(SETTINGS, CAPACITIES, STEPS)
def test_a_replay_is_deterministic(policy: AllocatorSettings, capacity: int | None, steps: list[int]) -> None:
    events = events_of(steps)
    assert replay(events, policy, capacity) == replay(iter(events), policy, capacity)


@settings(max_examples=100, deadline=None)
@given(SETTINGS, CAPACITIES, STEPS, st.lists(st.integers(0, 60), max_size=5))
def test_segment_events_add_up_to_what_is_reserved(
    policy: AllocatorSettings, capacity: int | None, steps: list[int], empty_cache_at: list[int]
) -> None:
    events = events_of(steps)
    places = [place for place in empty_cache_at if place <= len(events)]
    result = replay(events, policy, capacity, empty_cache_at=places)
    deltas = [0] * (len(events) + 1)
    for event in result.segment_events:
        deltas[event.event] += event.delta_bytes
    assert list(accumulate(deltas))[: len(result.reserved)] == list(result.reserved)
    assert sum(deltas) == sum(s.size for s in result.segments)
    assert max(result.reserved, default=0) <= result.peak_reserved
    assert result.releasable + result.stranded == sum(s.size - s.allocated for s in result.segments)


@settings(max_examples=100, deadline=None)
@given(SETTINGS, CAPACITIES, STEPS)
def test_an_emptied_cache_has_nothing_left_to_release(
    policy: AllocatorSettings, capacity: int | None, steps: list[int]
) -> None:
    allocator = CachingAllocator(policy, capacity)
    run(allocator, steps)
    expected = allocator.reserved - allocator.releasable
    allocated = allocator.allocated
    allocator.empty_cache()
    allocator.self_check()
    assert (allocator.reserved, allocator.releasable, allocator.allocated) == (expected, 0, allocated)
