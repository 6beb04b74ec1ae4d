"""The caching allocator: segments from the driver, cut into blocks, kept when they are free.

One stream, segments that do not expand. A request is served by the best-fitting free block of its pool;
failing that by a new segment; failing that (capacity) by a new segment after cached ones went back to
the driver; failing that the device is out of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from memdoctor.probes.simulated.allocator.blocks import Block, Pool
from memdoctor.probes.simulated.allocator.segments import LiveBlock, Segment, describe, tile, walk
from memdoctor.probes.simulated.allocator.settings import (
    AllocatorSettings,
    block_ceiling,
    is_split,
    round_size,
    segment_size,
)


class OutOfMemory(Exception):
    """The device cannot give ``segment_bytes`` more: ``free_bytes`` are left of its capacity.

    Raised after every cached segment went back. Not an error of the user's: a replay reports it as a result.
    """

    def __init__(self, requested_bytes: int, segment_bytes: int, free_bytes: int) -> None:
        """Keep the figures (``requested_bytes`` as asked for, ``segment_bytes`` as the driver was asked)."""
        super().__init__(f"{requested_bytes} bytes need a segment of {segment_bytes}, {free_bytes} are free")
        self.requested_bytes = requested_bytes
        self.segment_bytes = segment_bytes
        self.free_bytes = free_bytes


class CachingAllocator:
    """The allocator's state. ``allocated`` and ``reserved`` are bytes, as ``torch.cuda`` reports them.

    ``capacity_bytes`` is the most it may reserve (``None``: no end). ``place_segment`` maps the size of a
    new segment to its address, which matters because equal free blocks are taken lowest address first;
    without it addresses only grow (the driver would re-use those of released segments, in an order that
    is not documented). ``segment_changes`` lists (address, +bytes or -bytes) of all segments got and
    released, oldest first.
    """

    def __init__(
        self,
        settings: AllocatorSettings | None = None,
        capacity_bytes: int | None = None,
        place_segment: Callable[[int], int] | None = None,
    ) -> None:
        """Start with no segment."""
        self.settings = settings or AllocatorSettings()
        self.capacity_bytes = capacity_bytes
        self.allocated = 0
        self.reserved = 0
        self.segment_changes: list[tuple[int, int]] = []
        self._place_segment = place_segment or self._next_address
        self._end = 0
        self._small = Pool(small=True)
        self._large = Pool(small=False)
        self._heads: dict[int, Block] = {}

    def malloc(self, nbytes: int) -> Block:
        """Return a block for ``nbytes`` (over 0: PyTorch asks for nothing when a storage is empty)."""
        if nbytes <= 0:
            raise ValueError(f"a request must be for more than 0 bytes, not {nbytes}")
        size = round_size(nbytes, self.settings)
        pool = self._small if size <= self.settings.small_limit else self._large
        block = pool.take(size, block_ceiling(size, self.settings)) or self._reserve(nbytes, size, pool)
        if block.size != size and is_split(size, block.size - size, self.settings):
            pool.add(block.cut(size))
        block.requested = nbytes
        self.allocated += block.size
        return block

    def free(self, block: Block) -> None:
        """Give a block back; it grows together with free neighbours of its segment."""
        if not block.requested:
            raise ValueError(f"the block at {block.address} is free already")
        self.allocated -= block.size
        block.requested = 0
        pool = block.pool
        following = block.following
        if following is not None and not following.requested:
            pool.remove(following)
            block.absorb_following()
        previous = block.previous
        if previous is not None and not previous.requested:
            pool.remove(previous)
            previous.absorb_following()
            block = previous
        pool.add(block)

    def empty_cache(self) -> None:
        """Give every segment that is wholly free back to the driver, as ``torch.cuda.empty_cache()`` does."""
        for pool in (self._large, self._small):
            for block in [block for block in pool if block.is_whole_segment]:
                self._release(block)

    def adopt(self, address: int, size: int, *, small: bool, live: Sequence[LiveBlock]) -> list[Block]:
        """Take over a segment that exists already and return its live blocks, given in order of address.

        What lies between them is free. ``ValueError`` if they overlap or do not fit.
        """
        pool = self._small if small else self._large
        pieces = tile(address, size, live)
        block = self._enter(address, size, pool)
        blocks = []
        for piece, requested in pieces:
            rest = block.cut(piece) if piece < block.size else None
            block.requested = requested
            if requested:
                self.allocated += piece
                blocks.append(block)
            else:
                pool.add(block)
            block = rest or block
        return blocks

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Every segment held, in order of address."""
        return tuple(describe(head) for _, head in sorted(self._heads.items()))

    @property
    def largest_free_block(self) -> int:
        """Bytes of the largest cached free block of either pool."""
        return max(self._small.largest, self._large.largest)

    @property
    def releasable(self) -> int:
        """Bytes of the segments that are wholly free: ``empty_cache()`` would give them back."""
        return sum(block.size for pool in (self._small, self._large) for block in pool if block.is_whole_segment)

    @property
    def stranded(self) -> int:
        """Free bytes in segments that are partly in use (``inactive_split_bytes``): nobody else can have them."""
        return self.reserved - self.allocated - self.releasable

    def self_check(self) -> None:
        """Assert that blocks tile their segments, none free beside another free, and that all sums agree."""
        blocks = {address: list(walk(head)) for address, head in self._heads.items()}
        for address, chain in blocks.items():
            ends = [block.address + block.size for block in chain]
            assert [block.address for block in chain] == [address, *ends[:-1]], f"gap or overlap at {address}"
            assert [block.previous for block in chain] == [None, *chain[:-1]], f"broken links at {address}"
            assert all(a.requested or b.requested for a, b in pairwise(chain)), f"uncoalesced blocks at {address}"
        flat = [block for chain in blocks.values() for block in chain]
        assert sum(block.size for block in flat) == self.reserved
        assert sum(block.size for block in flat if block.requested) == self.allocated
        assert self._small.free_bytes + self._large.free_bytes == self.reserved - self.allocated
        assert self.capacity_bytes is None or self.reserved <= self.capacity_bytes

    def _reserve(self, nbytes: int, size: int, pool: Pool) -> Block:
        """Get a new segment for a block of ``size`` bytes, releasing cached ones if there is no room."""
        wanted = segment_size(size, self.settings)
        if not self._fits(wanted) and not (self._release_oversize(size, pool) and self._fits(wanted)):
            self.empty_cache()
        if not self._fits(wanted):
            raise OutOfMemory(nbytes, wanted, (self.capacity_bytes or 0) - self.reserved)
        address = self._place_segment(wanted)
        self.segment_changes.append((address, wanted))
        return self._enter(address, wanted, pool)

    def _fits(self, nbytes: int) -> bool:
        return self.capacity_bytes is None or self.reserved + nbytes <= self.capacity_bytes

    def _release_oversize(self, size: int, pool: Pool) -> bool:
        """Under ``max_split_size``, release one free block that is large enough, else the largest ones.

        Say whether that was enough to try again. If not, they are released all the same, as in PyTorch.
        Blocks of ``max_split_size`` or more are never cut, unless they were adopted: these are passed over.
        """
        limit = self.settings.max_split_size
        if limit is None:
            return False
        oversize = [block for block in pool if block.size >= limit and block.is_whole_segment]
        enough = next((block for block in oversize if block.size >= size), None)
        if enough is not None:
            self._release(enough)
            return True
        released = 0
        while oversize and released < size:
            released += oversize[-1].size
            self._release(oversize.pop())
        return released >= size

    def _enter(self, address: int, size: int, pool: Pool) -> Block:
        if address in self._heads:
            raise ValueError(f"there is a segment at {address} already")
        block = self._heads[address] = Block(address, size, pool)
        self._end = max(self._end, address + size)
        self.reserved += size
        return block

    def _release(self, block: Block) -> None:
        block.pool.remove(block)
        del self._heads[block.address]
        self.reserved -= block.size
        self.segment_changes.append((block.address, -block.size))

    def _next_address(self, _size: int) -> int:
        return self._end
