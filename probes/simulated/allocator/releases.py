"""Which cached segments go back to the driver: garbage collection, and oversize blocks when memory is short.

Source: ``garbage_collect_cached_blocks`` and ``release_available_cached_blocks`` in
``c10/cuda/CUDACachingAllocator.cpp`` of PyTorch. No recording covers them.
"""

from __future__ import annotations

from memdoctor.probes.simulated.allocator.blocks import Block, Pool


def to_collect(pool: Pool, target_bytes: int) -> list[Block]:
    """Return the wholly free segments to release, in order, so that ``target_bytes`` or more come back if they can.

    PyTorch collects under a memory fraction only, and in the large pool only. In rounds: all that are at least as old
    as the average of those left, and not only as many as it takes. An expandable segment that is wholly free counts
    in the average and is never released.
    """
    cached = [block for block in pool if block.is_whole_segment]
    count = len(cached)
    total_age = sum(_age(block, pool) for block in cached)
    collected: list[Block] = []
    reclaimed = 0
    while reclaimed < target_bytes and count > 0:
        average = total_age / count
        old = [block for block in cached if block.origin is None and _age(block, pool) >= average]
        if not old:
            break
        for block in old:
            cached.remove(block)
            reclaimed += block.size
            total_age -= _age(block, pool)
            count -= 1
        collected += old
    return collected


def oversize(pool: Pool, size: int, limit: int) -> tuple[list[Block], bool]:
    """Return the free blocks of ``limit`` bytes (``max_split_size``) or more to release, and whether they are enough.

    One if it has ``size`` bytes, else the largest ones until they have; if all are too little they go all the same.
    Blocks of ``limit`` or more are never cut, unless they were adopted: these are passed over. Those of expandable
    segments are nothing that could go; if the one that has ``size`` bytes is such, only smaller ones do.
    """
    wanted = max(size, limit)
    large = [block for block in pool if block.size >= limit and (block.is_whole_segment or block.origin is not None)]
    enough = next((at for at, block in enumerate(large) if block.size >= wanted), len(large))
    if enough < len(large) and large[enough].origin is None:
        return [large[enough]], True
    chosen: list[Block] = []
    for block in reversed(large[:enough]):
        if sum(block.size for block in chosen) >= wanted:
            break
        if block.origin is None:
            chosen.append(block)
    return chosen, sum(block.size for block in chosen) >= wanted


def _age(block: Block, pool: Pool) -> int:
    return pool.searches - block.pooled_at
