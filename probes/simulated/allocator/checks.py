"""Invariants of the allocator, for tests and for debugging."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from memdoctor.probes.simulated.allocator.blocks import Block, Pool
from memdoctor.probes.simulated.allocator.expandable import ExpandablePool
from memdoctor.probes.simulated.allocator.segments import walk


def check_segments(heads: dict[int, Block]) -> list[Block]:
    """Assert that blocks tile each segment, none free beside another free; return all blocks."""
    chains = {address: list(walk(head)) for address, head in heads.items()}
    for address, chain in chains.items():
        starts = [address, *(block.end for block in chain[:-1])]
        assert [block.address for block in chain] == starts, f"gap or overlap at {address}"
        assert [block.previous for block in chain] == [None, *chain[:-1]], f"broken links at {address}"
        assert all(_are_apart(a, b) for a, b in pairwise(chain)), f"uncoalesced blocks at {address}"
    return [block for chain in chains.values() for block in chain]


def check_pool(pool: Pool, blocks: Iterable[Block]) -> None:
    """Assert that the pool knows just those of all ``blocks`` that are free in it, and which are not mapped."""
    own = sorted((block for block in blocks if block.pool is pool), key=lambda block: block.address)
    free = [block for block in own if block.mapped and not block.requested]
    assert sorted(pool, key=lambda block: block.address) == free, "free blocks and pool differ"
    unmapped = [block for block in own if not block.mapped]
    assert unmapped == (pool.unmapped if isinstance(pool, ExpandablePool) else []), "unmapped blocks and pool differ"
    for block in unmapped:
        assert isinstance(pool, ExpandablePool)
        assert block.origin is not None, "an unmapped block outside of expandable segments"
        assert not block.requested, "a block in use is unmapped"
        assert (block.address - block.origin) % pool.page == block.size % pool.page == 0, "a part of a page is unmapped"


def _are_apart(one: Block, other: Block) -> bool:
    """Whether two neighbours are rightly two blocks: one is in use, or only one of them is mapped."""
    return bool(one.requested or other.requested) or one.mapped != other.mapped
