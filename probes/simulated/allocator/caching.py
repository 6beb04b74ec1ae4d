"""The caching allocator: segments from the driver, cut into blocks, kept when they are free.

One stream. A request is served by the best-fitting free block of its pool; failing that by a new segment (or, in
expandable segments, new pages); failing that (capacity, or the memory fraction) by a new one after cached ones
went back to the driver; failing that the device is out of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memdoctor.probes.simulated.allocator.blocks import Block, Pool
from memdoctor.probes.simulated.allocator.checks import check_pool, check_segments
from memdoctor.probes.simulated.allocator.expandable import ExpandablePool
from memdoctor.probes.simulated.allocator.oom import OutOfMemory
from memdoctor.probes.simulated.allocator.releases import oversize, to_collect
from memdoctor.probes.simulated.allocator.segments import LiveBlock, Segment, describe, tile, walk
from memdoctor.probes.simulated.allocator.settings import (
    AllocatorSettings,
    block_ceiling,
    is_split,
    round_size,
    segment_size,
)

Layout = tuple[tuple[Any, ...], ...]

_ENDLESS = 1 << 44
"""Bytes of addresses of an expandable segment on a device whose size is not known: 16 TiB."""


class CachingAllocator:
    """The allocator's state. ``allocated`` and ``reserved`` are bytes, as ``torch.cuda`` reports them, and
    ``peak_reserved`` is the most that ever was reserved.

    ``capacity_bytes`` is the most it may reserve (``None``: no end). ``device_bytes`` is all memory of the
    device (``cudaDeviceProp::totalGlobalMem``; ``None``: as much as the capacity), of which a memory fraction is
    taken: ``allowed`` bytes, ``None`` without a fraction or an end. ``place_segment`` maps the size of a
    new segment to its address, which matters because equal free blocks are taken lowest address first;
    without it addresses only grow (the driver would re-use those of released segments, in an order that
    is not documented). Of an expandable segment it is the size of its address space. ``segment_changes`` lists
    (address, +bytes or -bytes) of all segments (or pages) got and released, oldest first.
    """

    def __init__(
        self,
        settings: AllocatorSettings | None = None,
        capacity_bytes: int | None = None,
        place_segment: Callable[[int], int] | None = None,
        device_bytes: int | None = None,
    ) -> None:
        """Start with no segment."""
        self.settings = settings or AllocatorSettings()
        self.capacity_bytes = capacity_bytes
        self.device_bytes = capacity_bytes if device_bytes is None else device_bytes
        self.allowed = _allowed(self.settings.memory_fraction, self.device_bytes)
        self.allocated = 0
        self.reserved = self.peak_reserved = 0
        self.segment_changes: list[tuple[int, int]] = []
        self._place_segment = place_segment or self._next_address
        self._collects = self.allowed is not None and self.settings.garbage_collection_threshold > 0
        self._end = 0
        self._small = _pool(self.settings, small=True)
        self._large = _pool(self.settings, small=False)
        self._heads: dict[int, Block] = {}

    def malloc(self, nbytes: int) -> Block:
        """Return a block for ``nbytes`` (over 0: PyTorch asks for nothing when a storage is empty)."""
        if nbytes <= 0:
            raise ValueError(f"a request must be for more than 0 bytes, not {nbytes}")
        size = round_size(nbytes, self.settings)
        pool = self._small if size <= self.settings.small_limit else self._large
        if self._collects:
            pool.searches += 1
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
        block.pool.put_back(block)

    def empty_cache(self) -> None:
        """Give all that can go back to the driver, as ``torch.cuda.empty_cache()`` does.

        That is every segment that is wholly free, and of expandable segments every page that is.
        """
        for pool in (self._large, self._small):
            for block in [block for block in pool if block.is_whole_segment and block.origin is None]:
                self._release(block)
            if isinstance(pool, ExpandablePool):
                self._unmap_all(pool)

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
        """Every segment held, in order of address; of an expandable one, each run of mapped pages."""
        return tuple(segment for _, head in sorted(self._heads.items()) for segment in describe(head))

    def layout(self, names: Mapping[int, int]) -> Layout:
        """What decides all that follows: every segment in order of address, and its blocks.

        Each block is its size, what ``names`` calls it by its ``id`` (``None``: it is free), whether there is memory
        behind it, and its age where garbage is collected by age. Two equal layouts serve the same requests alike.
        """
        return tuple(
            (head.pool.small, *((b.size, names.get(id(b)), b.mapped, self._age(b)) for b in walk(head)))
            for _, head in sorted(self._heads.items())
        )

    def _age(self, block: Block) -> int:
        return block.pool.searches - block.pooled_at if self._collects and not block.requested else 0

    @property
    def largest_free_block(self) -> int:
        """Bytes of the largest cached free block of either pool."""
        return max(self._small.largest, self._large.largest)

    @property
    def releasable(self) -> int:
        """Bytes of the segments (or pages) that are wholly free: ``empty_cache()`` would give them back."""
        return sum(pool.releasable(block) for pool in (self._small, self._large) for block in pool)

    @property
    def stranded(self) -> int:
        """Free bytes in segments (or pages) that are partly in use: nobody else can have them.

        ``inactive_split_bytes`` of ``torch.cuda.memory_stats()``, which leaves out expandable segments.
        """
        return self.reserved - self.allocated - self.releasable

    def self_check(self) -> None:
        """Assert that blocks tile their segments, none free beside another free, and that all sums agree."""
        blocks = check_segments(self._heads)
        for pool in (self._small, self._large):
            check_pool(pool, blocks)
        assert sum(block.size for block in blocks if block.mapped) == self.reserved
        assert sum(block.size for block in blocks if block.requested) == self.allocated
        assert self._small.free_bytes + self._large.free_bytes == self.reserved - self.allocated
        assert self.capacity_bytes is None or self.reserved <= self.capacity_bytes

    def _reserve(self, nbytes: int, size: int, pool: Pool) -> Block:
        """Get memory for a block of ``size`` bytes, releasing cached segments if there is no room.

        The order of ``DeviceCachingAllocator::malloc``: garbage collection, try, release oversize blocks and try
        again, release everything and try a last time.
        """
        if self._collects:
            self._collect_garbage()
        block = self._grow(nbytes, size, pool)
        if block is None and self._release_oversize(size, pool):
            block = self._grow(nbytes, size, pool)
        if block is None:
            self.empty_cache()
            block = self._grow(nbytes, size, pool)
        if block is None:
            raise self._out_of_memory(nbytes, size)
        return block

    def _grow(self, nbytes: int, size: int, pool: Pool) -> Block | None:
        """Get a new segment or new pages for a block of ``size`` bytes: ``alloc_block``. ``None`` if there is no room.

        The limit is asked about the bytes of a segment even where pages are mapped: expandable segments can end
        up to a page over it. That ``throw_on_cudamalloc_oom`` (torch 2.12 and later) fails here, and not before
        garbage was collected, is taken from its description (pytorch/pytorch#179473).
        """
        wanted = segment_size(size, self.settings)
        if self.allowed is not None and self.reserved + wanted > self.allowed:
            if self.settings.throw_on_cudamalloc_oom:
                raise self._out_of_memory(nbytes, size)
            return None
        if isinstance(pool, ExpandablePool):
            return self._expand(size, pool)
        if not self._fits(wanted):
            return None
        address = self._place_segment(wanted)
        self.segment_changes.append((address, wanted))
        return self._enter(address, wanted, pool)

    def _expand(self, size: int, pool: ExpandablePool) -> Block | None:
        """Map pages until there is a free block of ``size`` bytes, and take it: ``try_allocate_expandable_block``.

        Pages that were mapped before one could not be are kept.
        """
        block = pool.room_for(size) or self._open(size, pool)
        while not block.mapped or block.size < size:
            hole = block if not block.mapped else block.following
            assert hole is not None
            missing = size if hole is block else size - block.size
            nbytes = pool.whole_pages(min(missing, hole.size))
            if not self._fits(nbytes):
                return None
            self.segment_changes.append((hole.address, nbytes))
            self._add_reserved(nbytes)
            block = pool.map(hole, nbytes)
        pool.remove(block)
        return block

    def _open(self, size: int, pool: ExpandablePool) -> Block:
        """Start an expandable segment, with addresses for 9/8 of the device so that pages can move to its end."""
        known = _ENDLESS if self.device_bytes is None else self.device_bytes + self.device_bytes // 8
        space = pool.whole_pages(max(known, size))
        block = pool.open(self._claim(self._place_segment(space), space), space)
        self._heads[block.address] = block
        return block

    def _unmap_all(self, pool: ExpandablePool) -> None:
        """Release all free pages of expandable segments; one that has no page left goes, with its addresses."""
        for block in [block for block in pool if block.origin is not None]:
            released = pool.unmap(block)
            if released is None:
                continue
            address, nbytes = released
            self.reserved -= nbytes
            self.segment_changes.append((address, -nbytes))
            head = self._heads[block.origin or 0]
            if head.is_whole_segment:
                pool.unmapped.remove(head)
                del self._heads[head.address]

    def _fits(self, nbytes: int) -> bool:
        return self.capacity_bytes is None or self.reserved + nbytes <= self.capacity_bytes

    def _out_of_memory(self, nbytes: int, size: int) -> OutOfMemory:
        """Read the figures of the message."""
        end = self.device_bytes if self.capacity_bytes is None else self.capacity_bytes
        return OutOfMemory(
            requested_bytes=nbytes,
            segment_bytes=segment_size(size, self.settings),
            free_bytes=(end or 0) - self.reserved,
            allocated_bytes=self.allocated,
            reserved_bytes=self.reserved,
            allowed_bytes=self.allowed,
        )

    def _collect_garbage(self) -> None:
        """Release old cached segments when more than the threshold's share of what is allowed is reserved."""
        assert self.allowed is not None
        excess = self.reserved - int(self.settings.garbage_collection_threshold * self.allowed)
        if excess > 0:
            for block in to_collect(self._large, excess):
                self._release(block)

    def _release_oversize(self, size: int, pool: Pool) -> bool:
        """Under ``max_split_size``, release oversize blocks, and say whether they were enough to try again."""
        if self.settings.max_split_size is None:
            return False
        blocks, enough = oversize(pool, size, self.settings.max_split_size)
        for block in blocks:
            self._release(block)
        return enough

    def _enter(self, address: int, size: int, pool: Pool) -> Block:
        block = self._heads[address] = Block(self._claim(address, size), size, pool)
        self._add_reserved(size)
        return block

    def _add_reserved(self, nbytes: int) -> None:
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _claim(self, address: int, size: int) -> int:
        """Note that a segment lies there, and return its address."""
        if address in self._heads:
            raise ValueError(f"there is a segment at {address} already")
        self._end = max(self._end, address + size)
        return address

    def _release(self, block: Block) -> None:
        block.pool.remove(block)
        del self._heads[block.address]
        self.reserved -= block.size
        self.segment_changes.append((block.address, -block.size))

    def _next_address(self, _size: int) -> int:
        return self._end


def _pool(settings: AllocatorSettings, *, small: bool) -> Pool:
    if not settings.expandable_segments:
        return Pool(small=small)
    return ExpandablePool(small=small, page=settings.small_segment if small else settings.large_segment)


def _allowed(fraction: float, device_bytes: int | None) -> int | None:
    """Return the bytes that a memory fraction allows (``setMemoryFraction``), ``None`` for no limit."""
    return None if fraction >= 1 or device_bytes is None else int(fraction * device_bytes)
