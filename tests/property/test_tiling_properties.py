"""Whatever a caching allocator does, its history tells how much each block was given."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from memdoctor.probes.simulated.allocator.caching import CachingAllocator
from memdoctor.probes.simulated.allocator.oom import OutOfMemory
from memdoctor.probes.simulated.allocator.settings import POWER2_INTERVALS, AllocatorSettings
from memdoctor.probes.tiling import Tiling

MIB = 1 << 20
SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, 3 * MIB),
    st.integers(1, 40 * MIB),
    st.builds(lambda base, offset: base + offset, st.sampled_from([MIB, 10 * MIB, 20 * MIB]), st.integers(-600, 600)),
)
# A step allocates that many bytes, frees the live block of that index (from the end, wrapped), or (0) empties all.
STEPS = st.lists(st.one_of(SIZES, SIZES, st.integers(-20, 0)), max_size=80)
SETTINGS = st.builds(
    AllocatorSettings,
    max_split_size=st.sampled_from([None, 20 * MIB, 24 * MIB]),
    roundup_power2_divisions=st.sampled_from([(0,) * POWER2_INTERVALS, (4,) * POWER2_INTERVALS]),
    expandable_segments=st.booleans(),
)
CAPACITIES = st.one_of(st.none(), st.integers(20, 120).map(lambda number: number * MIB))


@settings(max_examples=300, deadline=None)
@given(SETTINGS, CAPACITIES, STEPS)
def test_what_was_given_follows_from_addresses(
    policy: AllocatorSettings, capacity: int | None, steps: list[int]
) -> None:
    allocator, tiling = CachingAllocator(policy, capacity), Tiling(policy)
    live = []

    def follow() -> None:
        for address, delta in allocator.segment_changes:
            (tiling.map if delta > 0 else tiling.unmap)(address, abs(delta))
        allocator.segment_changes.clear()

    for step in steps:
        if step == 0:
            allocator.empty_cache()
            follow()
        elif step < 0:
            if live:
                block = live.pop(step % len(live))
                tiling.free(block.address)
                allocator.free(block)
        else:
            try:
                block = allocator.malloc(step)
            except OutOfMemory:
                break
            follow()
            assert tiling.allocate(block.address, step) == block.size
            live.append(block)
